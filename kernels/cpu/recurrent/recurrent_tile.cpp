#include "kernels/cpu/recurrent/recurrent_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent/recurrent_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

void conv(const ConvRun& s) {
  const int64_t before = s.taps - 1;
  for (int64_t j = 0; j < s.channels; j += L) {
    const int64_t count = s.channels - j;
    // Row `at` of the concatenation of the past and the tokens.
    auto line = [&](int64_t at) HWY_ATTR {
      if (at >= before) return load_up_to<AsF32>(bytes(s.x + (at - before) * s.stride + j), count);
      return s.past ? load_up_to<AsF32>(bytes(s.past + at * s.stride + j), count) : hn::Zero(df);
    };
    const V shift = s.bias ? load_up_to<AsF32>(bytes(s.bias + j), count) : hn::Zero(df);
    for (int64_t i = 0; i < s.tokens; ++i) {
      V sum = shift;
      for (int64_t tap = 0; tap < s.taps; ++tap)
        sum = hn::MulAdd(load_up_to<AsF32>(bytes(s.w + tap * s.stride + j), count), line(i + tap), sum);
      store_up_to<AsF32>(s.silu ? silu(sum) : sum, bytes(s.y + i * s.stride + j), count);
    }
    if (!s.kept) continue;
    for (int64_t row = 0; row < before; ++row)  // ascending: it may overwrite rows of the past that were already read
      store_up_to<AsF32>(line(s.tokens + row), bytes(s.kept + row * s.stride + j), count);
  }
}

/// `N` vectors of columns: whole, or of `count` elements, possibly none in the last vectors.
template <int N, bool whole>
struct Columns {
  int64_t count;
  HWY_INLINE V load(const float* row, int n) const {
    if (whole) return hn::LoadU(df, row + n * L);
    return n * L < count ? load_up_to<AsF32>(bytes(row + n * L), count - n * L) : hn::Zero(df);
  }
  HWY_INLINE void store(V x, float* row, int n) const {
    if (whole) hn::StoreU(x, df, row + n * L);
    else store_up_to<AsF32>(x, bytes(row + n * L), count - n * L);
  }
};

/// exp(decay) of each key.
void fade_factors(const float* decay, bool each, int64_t d, float* factors) {
  for (int64_t i = 0; i < d; i += L) {
    V x = each ? load_up_to<AsF32>(bytes(decay + i), d - i) : hn::Set(df, decay[0]);
    store_up_to<AsF32>(exp(x), bytes(factors + i), d - i);
  }
}

/// Rows of a state, `stride` apart.
struct Source {
  const float* rows;
  int64_t stride;
};
struct Target {
  float* rows;
  int64_t stride;
};

// The following code copies pointers and sizes: a stored vector could alias those in a StateRun, and each would be
// reloaded for each row.

/// tile = factors * from (null: from), and the key's stored value: found = tile^T key.
template <int N, class C>
HWY_INLINE void fade_and_find(C columns, Source from, Target tile, const float* factors, const float* key, int64_t d,
                              V (&found)[N]) {
  for (int n = 0; n < N; ++n) found[n] = hn::Zero(df);
  for (int64_t i = 0; i < d; ++i) {
    const V at = hn::Set(df, key[i]), factor = hn::Set(df, factors ? factors[i] : 1.0f);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      V x = hn::Mul(columns.load(from.rows + i * from.stride, n), factor);
      columns.store(x, tile.rows + i * tile.stride, n);
      found[n] = hn::MulAdd(x, at, found[n]);
    }
  }
}

/// to = from + key value^T, and sums = to^T query.
template <int N, class C>
HWY_INLINE void add_and_ask(C columns, Source from, Target to, const float* key, const V (&value)[N],
                            const float* query, int64_t d, V (&sums)[N]) {
  for (int64_t i = 0; i < d; ++i) {
    const V asks = hn::Set(df, query[i]), at = hn::Set(df, key[i]);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      V x = hn::MulAdd(at, value[n], columns.load(from.rows + i * from.stride, n));
      columns.store(x, to.rows + i * to.stride, n);
      sums[n] = hn::MulAdd(asks, x, sums[n]);
    }
  }
}

/// The state between tokens is in `tile`; the first token reads it from `past`, the last one writes it to `kept`.
template <int N, bool whole>
void state_columns(const StateRun& run) {
  const StateTokens& s = run.of;
  const Columns<N, whole> columns{run.columns};
  const Target tile{run.tile, run.columns};
  Source from{run.past, s.e};
  if (!from.rows) {
    for (int64_t i = 0; i < s.d; ++i)
      for (int n = 0; n < N; ++n) columns.store(hn::Zero(df), tile.rows + i * tile.stride, n);
    from = {tile.rows, tile.stride};
  }
  for (int64_t token = 0; token < s.tokens; ++token) {
    const float *key = s.k + token * s.k_stride, *value = s.v + token * s.v_stride, *q = s.q + token * s.q_stride;
    float* y = run.y + token * run.y_stride;
    V values[N], found[N], sums[N];
    for (int n = 0; n < N; ++n) values[n] = columns.load(value, n);
    if (s.decay) fade_factors(s.decay + token * s.decay_stride, s.decay_each, s.d, run.factors);
    if (s.decay || s.beta) {
      fade_and_find<N>(columns, from, tile, s.decay ? run.factors : nullptr, key, s.d, found);
      from = {tile.rows, tile.stride};
    }
    if (s.beta)
      for (int n = 0; n < N; ++n)
        values[n] = hn::Mul(hn::Set(df, s.beta[token * s.beta_stride]), hn::Sub(values[n], found[n]));
    const bool last = token + 1 == s.tokens && run.kept;
    const Target to = last ? Target{run.kept, s.e} : tile;
    for (int64_t query = 0; query < s.queries; ++query) {
      for (int n = 0; n < N; ++n) sums[n] = hn::Zero(df);
      const float* asked = q + query * s.query_stride;
      if (query > 0) {  // the first one has added the token
        for (int64_t i = 0; i < s.d; ++i)
          for (int n = 0; n < N; ++n)
            sums[n] = hn::MulAdd(hn::Set(df, asked[i]), columns.load(to.rows + i * to.stride, n), sums[n]);
      } else {
        add_and_ask<N>(columns, from, to, key, values, asked, s.d, sums);
      }
      for (int n = 0; n < N; ++n)
        columns.store(hn::Mul(sums[n], hn::Set(df, s.scale)), y + query * run.result_stride, n);
    }
    from = {to.rows, to.stride};
  }
}

template <int N>
void state_of(const StateRun& s) {
  return s.columns == N * L ? state_columns<N, true>(s) : state_columns<N, false>(s);
}

// AVX-512 has registers for the sums of 8 vectors, AVX2 for those of 4.
constexpr int64_t most_vectors = L == 16 ? 8 : 4, most_columns = L * most_vectors;

void state(const StateRun& s) {
  const int64_t vectors = (s.columns + L - 1) / L;
  if (vectors <= 1) return state_of<1>(s);
  if (vectors <= 2) return state_of<2>(s);
  if (vectors <= 4) return state_of<4>(s);
  return state_of<most_vectors>(s);
}

void conv_back(const ConvBack& s) {
  const int64_t before = s.taps - 1;
  auto add = [](float* row, V x, int64_t count) HWY_ATTR {
    store_up_to<AsF32>(hn::Add(load_up_to<AsF32>(bytes(row), count), x), bytes(row), count);
  };
  for (int64_t j = 0; j < s.channels; j += L) {
    const int64_t count = s.channels - j;
    V shift = hn::Zero(df), sum_of_bias = hn::Zero(df);
    if (s.bias) shift = load_up_to<AsF32>(bytes(s.bias + j), count);
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t first = i < before ? before - i : 0;  // tap: earlier ones use the past of the segment
      auto row = [&](int64_t tap) HWY_ATTR { return (i + tap - before) * s.stride + j; };
      V dsum = load_up_to<AsF32>(bytes(s.dy + i * s.stride + j), count);
      if (s.silu) {
        V sum = shift;
        for (int64_t tap = first; tap < s.taps; ++tap)
          sum = hn::MulAdd(load_up_to<AsF32>(bytes(s.w + tap * s.stride + j), count),
                           load_up_to<AsF32>(bytes(s.x + row(tap)), count), sum);
        const V share = sigmoid(sum), one = hn::Set(df, 1.0f);
        dsum = hn::Mul(dsum, hn::Mul(share, hn::MulAdd(sum, hn::Sub(one, share), one)));
      }
      sum_of_bias = hn::Add(sum_of_bias, dsum);
      for (int64_t tap = first; tap < s.taps; ++tap) {
        if (s.dx)
          add(s.dx + row(tap), hn::Mul(dsum, load_up_to<AsF32>(bytes(s.w + tap * s.stride + j), count)), count);
        if (s.dw)
          add(s.dw + tap * s.stride + j, hn::Mul(dsum, load_up_to<AsF32>(bytes(s.x + row(tap)), count)), count);
      }
    }
    if (s.dbias) add(s.dbias + j, sum_of_bias, count);
  }
}

const RecurrentTiles tiles{conv, state, conv_back, most_columns, 32};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const RecurrentTiles& recurrent_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
