#pragma once
// Per-target loops over arrays of f32.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

enum class Unary : int {
  exp, tanh, sigmoid, erf, gelu, gelu_tanh, silu, relu, sqrt, neg, identity, abs, reciprocal, hard_swish,
  count
};
/// max and min: a NaN wins; prelu: a where a >= 0, a b elsewhere.
enum class Binary : int { add, sub, mul, div, max, min, prelu, count };

/// Step of an operand of a binary loop: one element, or 0 for a scalar.
struct ElementwiseLoops {
  /// y[i] = f(x[i]), i < n; y may be x.
  void (*unary[static_cast<int>(Unary::count)])(const float* x, float* y, int64_t n);
  /// y[i] = f(a[i], b[i]); a_step and b_step are 1, or 0 for a scalar. y may be a or b.
  void (*binary[static_cast<int>(Binary::count)])(const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                   float* y, int64_t n);
  /// y[i] = f(gate[i]) * y[i].
  void (*gate[static_cast<int>(Unary::count)])(const float* gate, float* y, int64_t n);
  /// Casts, rounding to nearest even. `from` and `to` may have any alignment.
  void (*widen_bf16)(const uint8_t* from, float* to, int64_t n);
  void (*widen_f16)(const uint8_t* from, float* to, int64_t n);
  void (*narrow_bf16)(const float* from, uint8_t* to, int64_t n);
  void (*narrow_f16)(const float* from, uint8_t* to, int64_t n);
};

const ElementwiseLoops& elementwise_loops(Isa isa);

}  // namespace plait::cpu
