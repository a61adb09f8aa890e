#pragma once
// Per-target code of linear attention in training, and of its gradient: one head's tokens of one segment, a chunk of
// them at a time, so that nearly all of it is matrix products (after Yang et al. 2024, "Parallelizing linear
// transformers with the delta rule over sequence length" and "Gated delta networks").
//
// For one head, token by token: the state S [d, e] fades to diag(a_t) S, a_t = exp(decay_t) for each of d keys; a
// value's rest is r_t = v_t - S^T k_t (r_t = v_t without the delta rule); u_t = beta_t r_t is stored, S becomes
// S + k_t u_t^T; and a query reads scale S^T q_t. So rows x_t read the state: -k_t, before u_t is stored, and
// scale q_t of each query, after it.
//
// For a chunk that begins with the state S, let a(i, t) be the product of the factors a_s of i < s <= t, for each key,
// E_t that of all tokens up to t, and X_i that of all after i. Then
//
//   pairs     M_ti = sum over keys of x_t k_i a(i, t), for i <= t (queries) or i < t (-k), for each reader
//   rests     R = V + (E x) S + M U with the M of -k, U = beta R: solved from the first token on
//   results   Y = (E x) S + M U with the M of a query
//   state     S' = diag(E_last) S + (X k)^T U
//
// and backwards, where D is dY for queries and dR for the reader -k:
//
//   dU = (X k) dS' + sum over queries of M^T dY, then dR = beta (dU + M^T dR) with the M of -k: from the last token on
//   dbeta_t = (dU + M^T dR)_t . R_t,  dV = dR,  dM = D U^T,  d(E x) = D S^T,  d(X k) = U dS'^T
//   dS = diag(E_last) dS' + sum over readers of (E x)^T D
//
// No factor is divided by another, and exponentials are only of one token's decay: E and X are running products, and
// pairs across the middle of a span of tokens, after token j, are products of rows that enter its second half,
// x_t a(j, t), and rows that leave its first half, k_i a(i, j). Spans are halved down to 8 tokens, whose pairs are
// computed one by one. So a decay may be arbitrarily strong: what has faded is zero. The same holds backwards: the
// gradient of a decay is the sum over rows that cross it, x . dx of those that enter and k . dk of those that leave,
// without subtraction.
//
// The gradient keeps the state at the beginning of each chunk and all rests from a forward pass: (d / 32 + 1) e floats
// per token of one head for each thread, about five rows of values for d = 128.
#include <cstdint>

#include "kernels/cpu/recurrent/recurrent_tile.h"

namespace plait::cpu {

/// Tokens of a chunk: more of them read states less often, fewer make fewer pairs of tokens.
constexpr int64_t chunk_tokens = 32;

struct ChunkedRun {
  StateTokens of;
  float* y;  ///< of the first query
  int64_t y_stride, result_stride;
  float* workspace;  ///< scratch, ChunkWorkspace's floats
};

/// The gradients for a state that begins with zeros. All are overwritten; null: not wanted.
struct ChunkedBack {
  StateTokens of;
  const float* dy;
  float *dq, *dk, *dv, *ddecay, *dbeta;
  int64_t y_stride, result_stride, dq_stride, dk_stride,
      dbeta_stride;  ///< dv's and ddecay's are those of v and decay
  float* workspace;       ///< scratch, ChunkWorkspace's floats
};

/// Layout of a head's arrays. Rows are whole vectors with a cache line of padding: rows a power of two apart would
/// share few sets of L1.
struct ChunkWorkspace {
  /// `readers` of the state are queries, and keys if values are corrected. `tokens` of the segment for gradients,
  /// otherwise 0. A null base computes only the size.
  ChunkWorkspace(int64_t d, int64_t e, int64_t queries, int64_t readers, int64_t tokens, float* base = nullptr)
      : keys(whole(d) + 16), values(whole(e) + 16), state_floats(whole(d) * values), base_(base) {
    const int64_t c = chunk_tokens, chunks = (tokens + c - 1) / c;
    for (float** rows_of_keys : {&decays, &k, &entered, &left}) *rows_of_keys = take(c * keys);
    x = take(readers * c * keys);
    m = take(readers * c * pairs);
    across = take(keys);
    stored = take(c * values);
    y = take((tokens ? queries : 1) * c * values);
    transposed = take((whole(d) > c ? whole(d) : c) * pairs);
    rest = take((tokens ? chunks * c : c) * values);
    states = take((tokens ? chunks : 1) * state_floats);
    if (!tokens) return;
    for (float** rows_of_keys : {&dk, &dx, &dlog, &dscaled, &dleft}) *rows_of_keys = take(c * keys);
    dm = take(c * pairs);
    dstored = take(c * values);
    dstate = take(state_floats);
    state_transposed = take(whole(e) * keys);
    stored_transposed = take(whole(e) * pairs);
  }

  static constexpr int64_t pairs = chunk_tokens + 16;
  const int64_t keys, values;  ///< row strides: of keys, of values and states (pairs: of pairs of tokens)
  const int64_t state_floats;
  int64_t floats = 0;
  float *decays, *k, *x, *entered, *left, *across, *m, *stored, *y, *rest, *transposed, *states;
  float *dk, *dx, *dlog, *dscaled, *dleft, *dm, *dstored, *dstate, *state_transposed, *stored_transposed;

 private:
  static int64_t whole(int64_t count) { return (count + 15) / 16 * 16; }
  float* take(int64_t count) {
    float* out = base_ ? base_ + floats : nullptr;
    floats += whole(count);
    return out;
  }
  float* base_;
};

struct ChunkedTiles {
  void (*run)(const ChunkedRun& run);
  void (*back)(const ChunkedBack& back);
};

const ChunkedTiles& chunked_tiles(Isa isa);

}  // namespace plait::cpu
