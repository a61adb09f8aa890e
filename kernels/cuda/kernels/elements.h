#pragma once
// Elements in memory and their values in registers.
#include "kernels/cuda/kernels/device.h"
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

PLAIT_DEVICE float value_of(float element) { return element; }
PLAIT_DEVICE float value_of(Bf16 element) { return bf16_low(element.bits); }
PLAIT_DEVICE float value_of(F16 element) { return f16_to_float(element.bits); }

PLAIT_DEVICE void store(float* to, float value) { *to = value; }
PLAIT_DEVICE void store(Bf16* to, float value) { to->bits = static_cast<uint16_t>(pack_bf16(value, 0)); }
PLAIT_DEVICE void store(F16* to, float value) { to->bits = static_cast<uint16_t>(pack_f16(value, 0)); }

/// Element i of an array whose type is only known at run time: of weights that are read once a block.
PLAIT_DEVICE float load_element(const void* array, Element element, int64_t i) {
  if (element == Element::f32) return static_cast<const float*>(array)[i];
  const uint16_t bits = static_cast<const uint16_t*>(array)[i];
  return element == Element::bf16 ? bf16_low(bits) : f16_to_float(bits);
}

}  // namespace plait::cuda
