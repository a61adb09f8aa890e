// Per-target: a chunk of one head's tokens in linear attention, and the step to the next (chunked_tile.h).
#if defined(PLAIT_KERNELS_CPU_CHUNKED_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_CHUNKED_TILE_INL_H
#undef PLAIT_KERNELS_CPU_CHUNKED_TILE_INL_H
#else
#define PLAIT_KERNELS_CPU_CHUNKED_TILE_INL_H
#endif

#include "kernels/cpu/simd/broadcast-inl.h"
#include "kernels/cpu/recurrent/chunked_tile.h"
#include "kernels/cpu/simd/math-inl.h"
#include "kernels/cpu/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// Pairs of tokens within a span are computed one by one; rows of a product that are computed at once are within one
/// span.
constexpr int64_t span = 8;

/// Rows of an array, `stride` apart.
struct Rows {
  const float* data;
  int64_t stride;
  const float* operator[](int64_t i) const { return data + i * stride; }
};

/// y [m, n] = a [m, k] b [k, n], or y + a b.
void multiply(Rows a, Rows b, float* y, int64_t ldy, int64_t m, int64_t k, int64_t n, bool adds) {
  cover_rows(0, m, [&]<int ROWS>(int64_t i) HWY_ATTR {
    broadcast_product<AsF32, ROWS>(a[i], a.stride, k, bytes(b.data), b.stride * 4, y + i * ldy, ldy, n, adds);
  });
}

/// y_t += sum over i <= t of m_ti b_i, of c tokens.
void add_before(Rows m, Rows b, float* y, int64_t ldy, int64_t c, int64_t n, bool adds) {
  cover_rows(0, c, [&]<int ROWS>(int64_t t) HWY_ATTR {
    broadcast_product<AsF32, ROWS>(m[t], m.stride, t + ROWS, bytes(b.data), b.stride * 4, y + t * ldy, ldy, n, adds);
  });
}

/// y_i += sum over t >= i of m_it b_t: m is transposed.
void add_behind(Rows m, Rows b, float* y, int64_t ldy, int64_t c, int64_t n) {
  cover_rows(0, c, [&]<int ROWS>(int64_t i) HWY_ATTR {
    broadcast_product<AsF32, ROWS>(m[i] + i, m.stride, c - i, bytes(b[i]), b.stride * 4, y + i * ldy, ldy, n, true);
  });
}

/// y_ti = sum over n of a_tn b_ni for i <= t.
void multiply_pairs(Rows a, Rows b, float* y, int64_t ldy, int64_t c, int64_t n) {
  cover_rows(0, c, [&]<int ROWS>(int64_t t) HWY_ATTR {
    broadcast_product<AsF32, ROWS>(a[t], a.stride, n, bytes(b.data), b.stride * 4, y + t * ldy, ldy, t + ROWS, false);
  });
}

/// to [n, m] = transpose of from [m, n], zero-padded to whole vectors in both directions.
void transpose_rows(Rows from, int64_t m, int64_t n, float* to, int64_t stride) {
  for (int64_t i = 0; i < m; i += L)
    for (int64_t j = 0; j < n; j += L) {
      V v[L];
      for (int64_t row = 0; row < L; ++row)
        v[row] = i + row < m ? load_up_to<AsF32>(bytes(from[i + row] + j), n - j) : hn::Zero(df);
      transpose(v);
      for (int64_t row = 0; row < L; ++row) hn::StoreU(v[row], df, to + (j + row) * stride + i);
    }
}

/// to [whole vectors] = factor * from [count], zero-padded.
void copy_row(const float* from, float factor, int64_t count, float* to) {
  for (int64_t j = 0; j < count; j += L)
    hn::StoreU(hn::Mul(load_up_to<AsF32>(bytes(from + j), count - j), hn::Set(df, factor)), df, to + j);
}

/// The same for m rows. Those of the host's arrays are far apart, a token of all heads each, and prefetched some rows
/// ahead.
void copy_rows(Rows from, float factor, int64_t m, int64_t count, float* to, int64_t stride) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < count; j += 16) _mm_prefetch(reinterpret_cast<const char*>(from[i + 8] + j), _MM_HINT_T0);
    copy_row(from[i], factor, count, to + i * stride);
  }
}

/// One chunk of a head's tokens, and the step to the next.
class Chunks {
 public:
  Chunks(const StateTokens& of, const ChunkWorkspace& workspace)
      : s_(of), r_(workspace), d_((of.d + L - 1) / L * L), e_((of.e + L - 1) / L * L), correcting_(of.beta ? 1 : 0) {}

  int64_t readers() const { return s_.queries + correcting_; }
  Rows k() const { return {r_.k, r_.keys}; }
  Rows x(int64_t reader) const { return {r_.x + reader * chunk_tokens * r_.keys, r_.keys}; }
  Rows pairs(int64_t reader) const { return {r_.m + reader * chunk_tokens * r_.pairs, r_.pairs}; }

  /// Rows of tokens [begin, begin + c), and their pairs: of all readers, or only of -k.
  void load(int64_t begin, int64_t c, bool all) {
    begin_ = begin;
    c_ = c;
    rows_ = (c + span - 1) / span * span;
    const int64_t count = all ? readers() : correcting_;
    copy_rows({s_.k + begin * s_.k_stride, s_.k_stride}, 1, c, s_.d, r_.k, r_.keys);
    for (int64_t reader = 0; reader < count; ++reader) {
      float* to = r_.x + reader * chunk_tokens * r_.keys;
      const float* q = s_.q + begin * s_.q_stride + (reader - correcting_) * s_.query_stride;
      if (reader < correcting_) copy_rows(k(), -1, c, s_.d, to, r_.keys);
      else copy_rows({q, s_.q_stride}, s_.scale, c, s_.d, to, r_.keys);
    }
    for (int64_t t = 0; t < c; ++t) {
      const float* decay = s_.decay ? s_.decay + (begin + t) * s_.decay_stride : nullptr;
      const V one = s_.decay && !s_.decay_each ? exp(hn::Set(df, decay[0])) : hn::Set(df, 1.0f);
      for (int64_t j = 0; j < s_.d; j += L)
        hn::StoreU(s_.decay_each ? exp(load_up_to<AsF32>(bytes(decay + j), s_.d - j)) : one, df,
                   r_.decays + t * r_.keys + j);
    }
    clear(r_.k + c * r_.keys, (rows_ - c) * r_.keys);
    clear(r_.decays + c * r_.keys, (rows_ - c) * r_.keys);
    for (int64_t reader = 0; reader < count; ++reader)
      clear(r_.x + (reader * chunk_tokens + c) * r_.keys, (rows_ - c) * r_.keys);
    make_pairs(count);
  }

  /// Of the first `count` readers.
  void make_pairs(int64_t count) const {
    for (int64_t reader = 0; reader < count; ++reader)
      for (int64_t at = 0; at < c_; at += span) pairs_of_span(reader, at);
    for (int64_t half = span; half < c_; half *= 2)
      for (int64_t at = 0; at + half < c_; at += 2 * half) {
        const int64_t mid = at + half, end = mid + half < c_ ? mid + half : c_;
        leave(at, mid);
        transpose_rows({r_.left, r_.keys}, half, s_.d, r_.transposed, r_.pairs);
        for (int64_t reader = 0; reader < count; ++reader) {
          enter(reader, mid, end);
          multiply({r_.entered, r_.keys}, {r_.transposed, r_.pairs},
                   r_.m + (reader * chunk_tokens + mid) * r_.pairs + at, r_.pairs, end - mid, s_.d, half, false);
        }
      }
  }

  /// entered: x_t times the factors of tokens [begin, t], from row 0 on.
  void enter(int64_t reader, int64_t begin, int64_t end) const {
    for (int64_t j = 0; j < s_.d; j += L) {
      V factor = hn::Set(df, 1.0f);
      for (int64_t t = begin; t < end; ++t) {
        factor = hn::Mul(factor, decay(t, j));
        hn::StoreU(hn::Mul(hn::LoadU(df, x(reader)[t] + j), factor), df, r_.entered + (t - begin) * r_.keys + j);
      }
    }
  }

  /// left: k_i times the factors of tokens (i, end), from row 0 on; and of [begin, end), `across`.
  void leave(int64_t begin, int64_t end) const {
    for (int64_t j = 0; j < s_.d; j += L) {
      V factor = hn::Set(df, 1.0f);
      for (int64_t i = end; i-- > begin;) {
        hn::StoreU(hn::Mul(hn::LoadU(df, k()[i] + j), factor), df, r_.left + (i - begin) * r_.keys + j);
        factor = hn::Mul(factor, decay(i, j));
      }
      hn::StoreU(factor, df, r_.across + j);
    }
  }

  /// Rests, which are kept in `rest`, and stored values, after the state; null: zeros.
  void store_values(const float* state, float* rest) const {
    copy_rows({s_.v + begin_ * s_.v_stride, s_.v_stride}, 1, c_, s_.e, rest, r_.values);
    if (correcting_ && state) {
      enter(0, 0, c_);
      multiply({r_.entered, r_.keys}, {state, r_.values}, rest, r_.values, c_, s_.d, e_, true);
    }
    const Rows stored{r_.stored, r_.values}, m = pairs(0);
    for (int64_t at = 0; at < c_; at += span) {
      const int64_t end = at + span < c_ ? at + span : c_;
      if (correcting_ && at)
        multiply({m[at], m.stride}, stored, rest + at * r_.values, r_.values, end - at, at, e_, true);
      for (int64_t t = at; t < end; ++t)
        for (int64_t j = 0; j < s_.e; j += L) {
          V sum = hn::LoadU(df, rest + t * r_.values + j);
          for (int64_t i = at; correcting_ && i < t; ++i)
            sum = hn::MulAdd(hn::Set(df, m[t][i]), hn::LoadU(df, stored[i] + j), sum);
          hn::StoreU(sum, df, rest + t * r_.values + j);
          hn::StoreU(hn::Mul(sum, rate(t)), df, r_.stored + t * r_.values + j);
        }
    }
  }

  /// to = the state after the chunk; from: before it, or null for zeros. They may be the same.
  void advance(const float* from, float* to) const {
    leave(0, c_);
    transpose_rows({r_.left, r_.keys}, c_, s_.d, r_.transposed, r_.pairs);
    for (int64_t i = 0; from && i < s_.d; ++i) copy_row(from + i * r_.values, r_.across[i], s_.e, to + i * r_.values);
    multiply({r_.transposed, r_.pairs}, {r_.stored, r_.values}, to, r_.values, s_.d, c_, e_, from != nullptr);
  }

  /// Results of the chunk.
  void results(const ChunkedRun& run, const float* state) const {
    for (int64_t query = 0; query < s_.queries; ++query) {
      if (state) {
        enter(query + correcting_, 0, c_);
        multiply({r_.entered, r_.keys}, {state, r_.values}, r_.y, r_.values, c_, s_.d, e_, false);
      }
      add_before(pairs(query + correcting_), {r_.stored, r_.values}, r_.y, r_.values, c_, e_, state != nullptr);
      give({r_.y, r_.values}, 1, s_.e, run.y + query * run.result_stride, run.y_stride);
    }
  }

 protected:
  static void clear(float* to, int64_t count) { memset(to, 0, static_cast<size_t>(count) * sizeof(float)); }
  void give(Rows from, float factor, int64_t count, float* to, int64_t stride) const {
    to += begin_ * stride;
    for (int64_t t = 0; t < c_; ++t, to += stride) {
      for (int64_t j = 0; j < count; j += 16) __builtin_prefetch(to + 8 * stride + j, 1);
      for (int64_t j = 0; j < count; j += L)
        store_up_to<AsF32>(hn::Mul(hn::LoadU(df, from[t] + j), hn::Set(df, factor)), bytes(to + j), count - j);
    }
  }
  HWY_INLINE V decay(int64_t t, int64_t j) const { return hn::LoadU(df, r_.decays + t * r_.keys + j); }
  HWY_INLINE V rate(int64_t t) const { return hn::Set(df, s_.beta ? s_.beta[(begin_ + t) * s_.beta_stride] : 1.0f); }

  /// Pairs of a reader with key `first` + I, within a span: the key fades from token to token. Those of tokens before
  /// are zeros.
  template <int I>
  HWY_INLINE void pairs_of_key(int64_t reader, int64_t first) const {
    constexpr int behind = span - I;
    const Rows keys = k(), decays{r_.decays, r_.keys}, asks = x(reader);
    V sums[span];
#pragma GCC unroll 8
    for (int t = 0; t < span; ++t) sums[t] = hn::Zero(df);
    for (int64_t j = 0; j < s_.d; j += L) {
      V key = hn::LoadU(df, keys[first + I] + j);
#pragma GCC unroll 8
      for (int t = 0; t < behind; ++t) {
        if (t > 0) key = hn::Mul(key, hn::LoadU(df, decays[first + I + t] + j));
        sums[I + t] = hn::MulAdd(key, hn::LoadU(df, asks[first + I + t] + j), sums[I + t]);
      }
    }
    if (reader < correcting_) sums[I] = hn::Zero(df);
    alignas(16) float all[span];
    _mm_store_ps(all, sum_lanes(sums[0], sums[1], sums[2], sums[3]));
    _mm_store_ps(all + 4, sum_lanes(sums[4], sums[5], sums[6], sums[7]));
    for (int t = 0; t < span; ++t) r_.m[(reader * chunk_tokens + first + t) * r_.pairs + first + I] = all[t];
  }
  void pairs_of_span(int64_t reader, int64_t first) const {
    pairs_of_key<0>(reader, first), pairs_of_key<1>(reader, first), pairs_of_key<2>(reader, first);
    pairs_of_key<3>(reader, first), pairs_of_key<4>(reader, first), pairs_of_key<5>(reader, first);
    pairs_of_key<6>(reader, first), pairs_of_key<7>(reader, first);
  }

  const StateTokens& s_;
  const ChunkWorkspace& r_;
  const int64_t d_, e_;       ///< d and e rounded up to whole vectors: the excess of rows is zero
  const int64_t correcting_;  ///< 1: the first reader is -k
  int64_t begin_ = 0, c_ = 0;
  int64_t rows_ = 0;  ///< c_ rounded up to whole spans: missing tokens are zeros
};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#endif
