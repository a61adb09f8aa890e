#include "kernels/cpu/recurrent_tile.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

void conv(const ConvRun& s) {
  const int64_t before = s.taps - 1;
  for (int64_t j = 0; j < s.channels; j += L) {
    const int64_t count = s.channels - j;
    // Row `at` of what is in front of the first token and of the tokens, as one line.
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
    for (int64_t row = 0; row < before; ++row)  // ascending: it may overwrite rows of the past that were read already
      store_up_to<AsF32>(line(s.tokens + row), bytes(s.kept + row * s.stride + j), count);
  }
}

/// `N` vectors of columns, of which `count` elements exist.
template <int N>
struct Columns {
  int64_t count;
  HWY_INLINE V load(const float* row, int n) const { return load_up_to<AsF32>(bytes(row + n * L), count - n * L); }
  HWY_INLINE void store(V x, float* row, int n) const { store_up_to<AsF32>(x, bytes(row + n * L), count - n * L); }
};

/// exp(decay) of each key.
void fade_factors(const StateRun& s, const float* decay) {
  for (int64_t i = 0; i < s.d; i += L) {
    V x = s.decay_each ? load_up_to<AsF32>(bytes(decay + i), s.d - i) : hn::Set(df, decay[0]);
    store_up_to<AsF32>(exp(x), bytes(s.factors + i), s.d - i);
  }
}

/// The state between tokens is in `tile`; the first token reads it from `past`, the last one writes it to `kept`.
template <int N>
void state_columns(const StateRun& s) {
  const Columns<N> columns{s.columns};
  const float* from = s.past;
  int64_t from_stride = s.e;
  if (!from) {
    for (int64_t i = 0; i < s.d; ++i)
      for (int n = 0; n < N; ++n) columns.store(hn::Zero(df), s.tile + i * s.columns, n);
    from = s.tile, from_stride = s.columns;
  }
  for (int64_t token = 0; token < s.tokens; ++token) {
    const float *key = s.k + token * s.k_stride, *value = s.v + token * s.v_stride;
    V values[N];
    for (int n = 0; n < N; ++n) values[n] = columns.load(value, n);
    if (s.decay) fade_factors(s, s.decay + token * s.decay_stride);
    if (s.decay || s.beta) {
      V found[N];
      for (int n = 0; n < N; ++n) found[n] = hn::Zero(df);
      for (int64_t i = 0; i < s.d; ++i) {
        const V at = hn::Set(df, key[i]), factor = hn::Set(df, s.decay ? s.factors[i] : 1.0f);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          V x = columns.load(from + i * from_stride, n);
          if (s.decay) x = hn::Mul(x, factor);
          columns.store(x, s.tile + i * s.columns, n);
          found[n] = hn::MulAdd(x, at, found[n]);
        }
      }
      from = s.tile, from_stride = s.columns;
      if (s.beta) {
        const V rate = hn::Set(df, s.beta[token * s.beta_stride]);
        for (int n = 0; n < N; ++n) values[n] = hn::Mul(rate, hn::Sub(values[n], found[n]));
      }
    }
    const bool last = token + 1 == s.tokens && s.kept;
    float* to = last ? s.kept : s.tile;
    const int64_t to_stride = last ? s.e : s.columns;
    for (int64_t query = 0; query < s.queries; ++query) {
      const float* q = s.q + token * s.q_stride + query * s.query_stride;
      V sums[N];
      for (int n = 0; n < N; ++n) sums[n] = hn::Zero(df);
      for (int64_t i = 0; i < s.d; ++i) {
        const V asks = hn::Set(df, q[i]), at = hn::Set(df, key[i]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) {
          V x = columns.load(from + i * from_stride, n);
          if (query == 0) {  // the first one adds the token as it reads
            x = hn::MulAdd(at, values[n], x);
            columns.store(x, to + i * to_stride, n);
          }
          sums[n] = hn::MulAdd(asks, x, sums[n]);
        }
      }
      from = to, from_stride = to_stride;
      float* y = s.y + token * s.y_stride + query * s.result_stride;
      for (int n = 0; n < N; ++n) columns.store(hn::Mul(sums[n], hn::Set(df, s.scale)), y, n);
    }
  }
}

void state(const StateRun& s) {
  switch ((s.columns + L - 1) / L) {
    case 1: return state_columns<1>(s);
    case 2: return state_columns<2>(s);
    case 3: return state_columns<3>(s);
    default: return state_columns<4>(s);
  }
}

const RecurrentTiles tiles{conv, state, 4 * L};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const RecurrentTiles& recurrent_tiles(Isa isa) { return isa == Isa::avx2 ? N_AVX2::tiles : N_AVX3::tiles; }

}  // namespace plait::cpu
#endif
