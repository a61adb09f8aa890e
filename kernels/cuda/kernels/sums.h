#pragma once
// Reductions whose order depends on the number of threads only.
#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {

PLAIT_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int by = 16; by; by /= 2) value += __shfl_xor_sync(~0U, value, by);
  return value;
}
PLAIT_DEVICE float warp_max(float value) {
#pragma unroll
  for (int by = 16; by; by /= 2) value = fmaxf(value, __shfl_xor_sync(~0U, value, by));
  return value;
}

/// The sum over the block's threads, on all of them.
template <int threads>
PLAIT_DEVICE float block_sum(float value) {
  PLAIT_SHARED(float, sums, threads / 32);
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float out = 0;
#pragma unroll
  for (int i = 0; i < threads / 32; ++i) out += sums[i];
  __syncthreads();  // the next sum is in the same place
  return out;
}

/// The largest of the block's threads, on all of them.
template <int threads>
PLAIT_DEVICE float block_max(float value) {
  PLAIT_SHARED(float, largest, threads / 32);
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  float out = largest[0];
#pragma unroll
  for (int i = 1; i < threads / 32; ++i) out = fmaxf(out, largest[i]);
  __syncthreads();
  return out;
}

}  // namespace plait::cuda
