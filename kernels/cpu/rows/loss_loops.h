#pragma once
// Per-target loops over a row of logits.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// What is done to products, with their bias, before they are logits: cap tanh(scale x / cap), or scale x where cap is 0.
struct LogitScale {
  float scale = 1, cap = 0;
};

struct LossLoops {
  /// x, products, becomes logits; `bias` is null where there is none.
  void (*to_logits)(float* x, const float* bias, int64_t n, LogitScale scale);
  /// `most` and `sum` (of e^(logit - most)) take logits in.
  void (*take_in)(const float* x, int64_t n, float& most, float& sum);
  /// As `take_in`; x, logits, becomes e^(logit - most) d logit / d product.
  void (*weigh)(float* x, int64_t n, LogitScale scale, float& most, float& sum);
  /// x, logits, becomes dloss e^(logit - logsumexp) d logit / d product.
  void (*changes)(float* x, int64_t n, LogitScale scale, float logsumexp, float dloss);
};

const LossLoops& loss_loops(Isa isa);

}  // namespace plait::cpu
