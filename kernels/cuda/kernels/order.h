#pragma once
// Numbers that are in the order of floats.
#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {

/// Ascending where floats descend; -0 is 0, and NaN is before all.
PLAIT_DEVICE uint32_t descending_bits(float value) {
  if (value != value) return 0;
  const uint32_t bits = __float_as_uint(value + 0.0F);
  return bits >> 31 ? bits : ~bits & 0x7fffffffU;
}
PLAIT_DEVICE float of_descending_bits(uint32_t bits) {
  return __uint_as_float(bits >> 31 ? bits : ~bits & 0x7fffffffU);
}

PLAIT_DEVICE uint64_t warp_min(uint64_t value) {
#pragma unroll
  for (int by = 16; by; by /= 2) {
    const uint64_t other = __shfl_xor_sync(~0U, value, by);
    if (other < value) value = other;
  }
  return value;
}

}  // namespace plait::cuda
