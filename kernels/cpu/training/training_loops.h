#pragma once
// Per-target loops over f32 arrays for training. Rows and elements are independent: their bits do not depend on their
// position.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// The derivatives of ONNX's functions of these names.
enum class Derivative : int { relu, tanh, sigmoid, softplus, erf, silu, gelu, gelu_tanh, count };

/// Numbers of one step of AdamW, rounded once.
struct AdamStep {
  float scale;                       ///< of the gradient
  float beta1, rest1, beta2, rest2;  ///< rest = 1 - beta
  float epsilon, decay;              ///< decay: rate times decay
  float rate, inverse2;              ///< rate / correction1 and 1 / correction2
};
struct SgdStep {
  float scale, momentum, rate, decay;  ///< decay as the attribute
};

/// A row of Adafactor's steps: u = scale gradient / sqrt(max(row column, floor)).
struct FactoredRow {
  float scale, row, floor;
  float shrink, step;  ///< w becomes w - (shrink w + step u)
};

struct TrainingLoops {
  /// A step of n elements: from[w, first, second, gradient] to the same of `to`, which may be the same arrays.
  void (*adamw)(const float* const from[4], float* const to[4], int64_t n, const AdamStep& step);
  /// The same of [w, velocity, gradient].
  void (*sgd)(const float* const from[3], float* const to[3], int64_t n, const SgdStep& step);
  /// The sum of the squares of u, n elements.
  float (*factored_squares)(const float* gradient, const float* column, int64_t n, const FactoredRow& row);
  /// A step of w; the gradient becomes 0. from[w, gradient] to the same of `to`, which may be the same arrays.
  void (*factored_step)(const float* const from[2], const float* column, float* const to[2], int64_t n,
                        const FactoredRow& row);
  /// y[i] = dy[i] f'(x[i]); y may be x or dy.
  void (*unary_back[static_cast<int>(Derivative::count)])(const float* x, const float* dy, float* y, int64_t n);
  /// A row of plait.RMSNormBack: dx, and dscale and dbias added to, n elements each. dx may be x or dy.
  void (*rms_norm_back)(const float* x, const float* scale, const float* dy, float epsilon, float* dx, float* dscale,
                        float* dbias, int64_t n);
  void (*layer_norm_back)(const float* x, const float* scale, const float* dy, float epsilon, float* dx,
                          float* dscale, float* dbias, int64_t n);
  /// dx = y (dy - sum of y dy); dx may be y or dy.
  void (*softmax_back)(const float* y, const float* dy, float* dx, int64_t n);
};

const TrainingLoops& training_loops(Isa isa);

}  // namespace plait::cpu
