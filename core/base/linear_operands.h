#pragma once
// Operands by number, as the schema rows of Plait's products name them (core/ops/plait_ops.cpp).
#include <cstddef>

namespace plait {

/// Of plait.Linear; plait.AdaptedLinear has its adapters after these.
enum LinearOperand : size_t { linear_x, linear_w, linear_bias, linear_scales, linear_zeros, linear_operands };

enum GatedOperand : size_t {
  gated_x,
  gated_gate,
  gated_up,
  gated_gate_scales,
  gated_gate_zeros,
  gated_up_scales,
  gated_up_zeros,
  gated_operands
};

}  // namespace plait
