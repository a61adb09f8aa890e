#pragma once
// Per-target loops over a row of logits.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// The function from products, with bias, to logits: cap tanh(scale x / cap), or scale x if cap is 0.
struct LogitScale {
  float scale = 1, cap = 0;
};

struct LossLoops {
  /// Converts products x to logits; `bias` may be null.
  void (*to_logits)(float* x, const float* bias, int64_t n, LogitScale scale);
  /// Updates `most` and `sum` (of e^(logit - most)) with logits.
  void (*take_in)(const float* x, int64_t n, float& most, float& sum);
  /// Like `take_in`; also converts logits x to e^(logit - most) d logit / d product.
  void (*weigh)(float* x, int64_t n, LogitScale scale, float& most, float& sum);
  /// Converts logits x to dloss e^(logit - logsumexp) d logit / d product.
  void (*changes)(float* x, int64_t n, LogitScale scale, float logsumexp, float dloss);
};

const LossLoops& loss_loops(Isa isa);

}  // namespace plait::cpu
