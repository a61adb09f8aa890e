// What a machine reaches at best, for its report (tests/gpu/ceilings.cpp): products of registers on tensor cores, and a launch without
// work.
#include "kernels/cuda/kernels/peak.h"

#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {
namespace {

/// out [blocks * threads]: sums of products of ones, 16 a round and sum.
template <bool is_f16>
PLAIT_DEVICE void multiply(float* out, int rounds) {
  const uint32_t ones = is_f16 ? pack_f16(1, 1) : pack_bf16(1, 1);
  const Fragment a{{ones, ones, ones, ones}};
  Sums sums[peak_sums];
#pragma unroll
  for (int i = 0; i < peak_sums; ++i) sums[i] = {{0, 0, 0, 0}};
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < peak_sums; ++i) {
      if (is_f16) mma_f16(sums[i], a, ones, ones);
      else mma_bf16(sums[i], a, ones, ones);
    }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < peak_sums; ++i) sum += sums[i].c[0];
  out[static_cast<int64_t>(blockIdx.x) * peak_threads + threadIdx.x] = sum;
}

}  // namespace

PLAIT_KERNEL(peak_nothing, 32, 1, (int unused)) { (void)unused; }
PLAIT_KERNEL(peak_bf16, peak_threads, 2, (float* out, int rounds)) { multiply<false>(out, rounds); }
PLAIT_KERNEL(peak_f16, peak_threads, 2, (float* out, int rounds)) { multiply<true>(out, rounds); }

}  // namespace plait::cuda
