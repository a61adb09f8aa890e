// Kernels that are wrong in ways that the emulation finds, and one that is right.
#include "kernels/cuda/kernels/device.h"

namespace plait::test {

constexpr int threads = 64;

/// y[i] = x[63 - i]: every thread reads what another one has written.
PLAIT_KERNEL(reverse, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads);
  all[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = all[threads - 1 - threadIdx.x];
}
PLAIT_KERNEL(no_barrier, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads);
  all[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = all[threads - 1 - threadIdx.x];
}
PLAIT_KERNEL(different_barriers, threads, 1, (const float* x, float* y)) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = x[threadIdx.x];
}
PLAIT_KERNEL(early_end, threads, 1, (const float* x, float* y)) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  y[threadIdx.x] = x[threadIdx.x];
}
PLAIT_KERNEL(half_a_warp, threads, 1, (const float* x, float* y)) {
  if (threadIdx.x % 2) y[threadIdx.x] = __shfl_xor_sync(~0U, x[threadIdx.x], 2);
}
PLAIT_KERNEL(outside_the_mask, threads, 1, (const float* x, float* y)) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffU, x[threadIdx.x], 16);
}
PLAIT_KERNEL(different_operations, threads, 1, (const float* x, float* y)) {
  const float mine = x[threadIdx.x];
  y[threadIdx.x] = threadIdx.x % 2 ? __shfl_xor_sync(~0U, mine, 1) : __shfl_sync(~0U, mine, 0);
}
PLAIT_KERNEL(no_wait, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads * 4);
  copy_async(all + threadIdx.x * 4, x + threadIdx.x / 4 * 4, true);
  copy_commit();
  y[threadIdx.x] = all[threadIdx.x * 4 + threadIdx.x % 4];
  copy_wait<0>();
}
PLAIT_KERNEL(never_waits, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads * 4);
  copy_async(all + threadIdx.x * 4, x, true);
  copy_commit();
  y[threadIdx.x] = 0;
}
PLAIT_KERNEL(beyond_an_array, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads);
  all[threadIdx.x + 1] = x[threadIdx.x];
  y[threadIdx.x] = 0;
}
PLAIT_KERNEL(misaligned, threads, 1, (const float* x, float* y)) {
  y[threadIdx.x] = __uint_as_float(load_once(x + 1).x);
}
PLAIT_KERNEL(too_much_shared, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, 13 << 10);
  all[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = all[threadIdx.x];
}
/// Blocks write one place: other threads of each, since a thread of all blocks is one fiber for ThreadSanitizer.
PLAIT_KERNEL(one_place, threads, 1, (const float* x, float* y)) {
  y[(threadIdx.x + blockIdx.x) % threads] = x[threadIdx.x] + 100 * blockIdx.x;
}
/// A shuffle orders no memory on a chip. Only ThreadSanitizer can know.
PLAIT_KERNEL(shuffle_for_syncwarp, threads, 1, (const float* x, float* y)) {
  PLAIT_SHARED(float, all, threads);
  all[threadIdx.x] = x[threadIdx.x];
  const float other = __shfl_xor_sync(~0U, 1.0F, 1);
  y[threadIdx.x] = all[threadIdx.x ^ 1] * other;
}

}  // namespace plait::test
