#pragma once
// Per-target code of causal convolutions and their gradients, and of plait.LinearAttention: the tokens of one
// segment, over some columns.
// some columns.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Channels of a causal convolution: each independently, tokens and taps ascending.
struct ConvRun {
  const float* x;     ///< the first token's; tokens are `stride` apart, as are rows of w, past, kept and y
  const float* w;     ///< [taps, channels]
  const float* bias;  ///< or null
  const float* past;  ///< [taps - 1, channels], or null for zeros
  float* kept;        ///< the same of the last tokens, or null. May be `past`
  float* y;
  int64_t tokens, taps, channels, stride;
  bool silu;
};

/// Operands of a segment's tokens for one state [d, e], or for some columns of it.
struct StateTokens {
  const float *q, *k, *v;  ///< the first token's
  const float* decay;      ///< of all keys, or (decay_each) one for each of d; null: the state does not fade
  const float* beta;       ///< null: values are stored unchanged
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride;  ///< between tokens
  int64_t tokens, d, e;
  int64_t queries, query_stride;  ///< that read this state, and their stride
  bool decay_each;
  float scale;
};

/// `columns` of the state, from v's first one on: each independently, tokens and keys ascending.
struct StateRun {
  StateTokens of;
  const float* past;                ///< rows of d, e apart, or null for zeros
  float* kept;                      ///< the same, or null. May be `past`
  float* y;                         ///< of the first query
  int64_t y_stride, result_stride;  ///< between tokens, between queries' results
  int64_t columns;
  float* tile;     ///< scratch [d, columns]
  float* factors;  ///< scratch [d]
};

/// The gradients of a convolution that begins with zeros. Results are accumulated; null: not wanted.
struct ConvBack {
  const float *dy, *x, *w;  ///< as in ConvRun
  const float* bias;        ///< or null
  float *dx, *dw, *dbias;
  int64_t tokens, taps, channels, stride;
  bool silu;
};

struct RecurrentTiles {
  void (*conv)(const ConvRun& run);
  void (*state)(const StateRun& run);
  void (*conv_back)(const ConvBack& run);
  int64_t wide;    ///< maximum columns of a StateRun: their sums fit the registers
  int64_t narrow;  ///< of which 128 rows, 16 KB, stay in L1 between tokens
};

const RecurrentTiles& recurrent_tiles(Isa isa);

}  // namespace plait::cpu
