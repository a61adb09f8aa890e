#pragma once
// The per-target heart of plait.CausalConv and plait.LinearAttention, and of their gradients: the tokens of one segment, over
// some columns.
#include <cstdint>

#include "kernels/cpu/isa.h"

namespace plait::cpu {

/// Channels of a causal convolution: each is computed by itself, tokens and taps ascending.
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

/// Columns of one state [d, e], from its first `columns` on: each is computed by itself, tokens and keys ascending.
struct StateRun {
  const float *q, *k, *v;  ///< the first token's
  const float* decay;      ///< of all keys, or (decay_each) one for each of d; null: the state does not fade
  const float* beta;       ///< null: values are stored as they are
  const float* past;       ///< rows of d, e apart, or null for zeros
  float* kept;             ///< the same, or null. May be `past`
  float* y;                ///< of the first query
  int64_t q_stride, k_stride, v_stride, decay_stride, beta_stride, y_stride;  ///< between tokens
  int64_t tokens, d, e, columns;
  int64_t queries, query_stride,
      result_stride;  ///< that read this state, and how far apart they and their results are
  bool decay_each;
  float scale;
  float* tile;     ///< scratch [d, columns]
  float* factors;  ///< scratch [d]
};

/// The gradients of a convolution that begins with zeros. Results are added to, or null: none.
struct ConvBack {
  const float *dy, *x, *w;  ///< as in ConvRun
  const float* bias;        ///< or null
  float *dx, *dw, *dbias;
  int64_t tokens, taps, channels, stride;
  bool silu;
};

/// The gradients of columns of one state that begins with zeros. Those of queries, keys, decay and beta are sums over all
/// columns, and added to; those of values are written. Null: they are not wanted.
struct StateBack {
  const float *dy, *q, *k, *v;  ///< the first token's
  const float *decay, *beta;    ///< as in StateRun
  float *dq, *dk, *dv, *ddecay, *dbeta;
  int64_t y_stride, q_stride, k_stride, v_stride, decay_stride, beta_stride;  ///< between tokens
  int64_t dq_stride, dk_stride, dbeta_stride;  ///< dv's and ddecay's are those of v and decay
  int64_t tokens, d, columns;
  int64_t queries, query_stride, result_stride;  ///< as in StateRun; dq's are as far apart as queries
  bool decay_each;
  float scale;
  int64_t block;  ///< tokens whose states are in memory at once
  float* room;    ///< scratch, back_room(...) floats
};

/// Of n tokens: the states at the beginnings of blocks, those within one block, the present one and its gradient; what is
/// stored at each token of a block; and a factor for each key.
inline int64_t back_room(int64_t tokens, int64_t block, int64_t d, int64_t columns) {
  return ((tokens + block - 1) / block + block + 2) * d * columns + block * columns + d;
}

struct RecurrentTiles {
  void (*conv)(const ConvRun& run);
  void (*state)(const StateRun& run);
  void (*conv_back)(const ConvBack& run);
  void (*state_back)(const StateBack& run);
  int64_t wide;    ///< most columns of a StateRun: whose sums fit the registers
  int64_t narrow;  ///< of which 128 rows, 16 KB, stay in L1 from one token to the next
};

const RecurrentTiles& recurrent_tiles(Isa isa);

}  // namespace plait::cpu
