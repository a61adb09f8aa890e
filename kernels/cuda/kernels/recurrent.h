#pragma once
// Launches of recurrent.cu. States lie in slots; a segment's tokens are consecutive.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

/// Segments of tokens [tokens], and their slots [segments, 2] of the state before and after.
struct SegmentSlots {
  Indices segments, slots;
  FaultReport report;
  int64_t tokens, count, states;
  int64_t operand;  ///< of the segments; the slots are the next one
};

/// y [tokens, c] = sums of the last `taps` x of each channel, with the state [states, taps - 1, c] before them.
struct CausalConvOperands {
  float* state;
  const float* x;
  const void *w, *bias;  ///< [taps, c], [c]
  float* y;
  SegmentSlots runs;
  Element w_element, bias_element;
  int32_t c, taps;
  int64_t silu;
};

/// y [tokens, n e] of queries [tokens, h d], keys [tokens, keys d] and values [tokens, g e] and the state [states, g, d, e]: see
/// kernels/reference/recurrent.h.
struct LinearAttentionOperands {
  float* state;
  const float *query, *key, *value, *decay, *beta;  ///< decay, beta: null without
  float* y;
  SegmentSlots runs;
  int32_t h, g, n, d, keys, e;
  int32_t decay_of_keys, beta_of_heads;  ///< whether there is one for each key's element, and for each head
  float scale;
  int32_t unused;
};

constexpr int conv_threads = 256;
/// A block has 32 columns of a state, and a warp every eighth of its rows.
constexpr int state_columns = 32, state_warps = 8, state_threads = state_columns * state_warps;

inline Geometry conv_geometry(int64_t rows, int64_t c) {
  return {static_cast<unsigned>(ceil_div(c, conv_threads)), static_cast<unsigned>(rows), 1, conv_threads};
}
inline Geometry linear_attention_geometry(const LinearAttentionOperands& o) {
  return {static_cast<unsigned>(ceil_div(o.e, state_columns)), static_cast<unsigned>(o.g),
          static_cast<unsigned>(o.runs.count), state_threads, static_cast<unsigned>(o.d * state_columns * 4)};
}

}  // namespace plait::cuda
