#include "kernels/cpu/recurrent/chunked_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent/chunked_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/recurrent/chunked_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

class ChunksBack : Chunks {
 public:
  ChunksBack(const ChunkedBack& back, const ChunkWorkspace& workspace) : Chunks(back.of, workspace), b_(back) {}

  void run() {
    const int64_t n = s_.tokens, last = (n - 1) / chunk_tokens;
    auto size = [&](int64_t chunk) {
      return n - chunk * chunk_tokens < chunk_tokens ? n - chunk * chunk_tokens : chunk_tokens;
    };
    for (int64_t chunk = 0; chunk <= last; ++chunk) {
      load(chunk * chunk_tokens, size(chunk), false);
      store_values(state(chunk), rests(chunk));
      if (chunk < last) advance(state(chunk), r_.states + (chunk + 1) * r_.state_floats);
    }
    for (int64_t chunk = last; chunk >= 0; --chunk) {
      load(chunk * chunk_tokens, size(chunk), true);
      for (int64_t t = 0; t < c_; ++t)
        for (int64_t j = 0; j < s_.e; j += L)
          hn::StoreU(hn::Mul(hn::LoadU(df, rests(chunk) + t * r_.values + j), rate(t)), df,
                     r_.stored + t * r_.values + j);
      back(state(chunk), rests(chunk), chunk == last);
    }
  }

 private:
  const float* state(int64_t chunk) const { return chunk ? r_.states + chunk * r_.state_floats : nullptr; }
  float* rests(int64_t chunk) const { return r_.rest + chunk * chunk_tokens * r_.values; }
  Rows dy(int64_t query) const { return {r_.y + query * chunk_tokens * r_.values, r_.values}; }

  /// The chunk after `state` (null: zeros); dstate is the gradient of the state after the chunk (`last`: zeros) and
  /// becomes that of `state`.
  void back(const float* state, const float* rest, bool last) const {
    const Rows stored{r_.stored, r_.values};
    clear(r_.dk, rows_ * r_.keys);
    clear(r_.dlog, rows_ * r_.keys);
    clear(r_.dstored, c_ * r_.values);
    leave(0, c_);
    if (!last) {
      multiply({r_.left, r_.keys}, {r_.dstate, r_.values}, r_.dstored, r_.values, c_, s_.d, e_, false);
      transpose_rows({r_.dstate, r_.values}, s_.d, s_.e, r_.state_transposed, r_.keys);
      multiply(stored, {r_.state_transposed, r_.keys}, r_.dleft, r_.keys, c_, s_.e, d_, false);
      left_back(0, c_);
      if (state) across_back(state);
    } else if (state) {
      clear(r_.dstate, r_.state_floats);
    }
    for (int64_t query = 0; query < s_.queries; ++query) {
      copy_rows({b_.dy + begin_ * b_.y_stride + query * b_.result_stride, b_.y_stride}, 1, c_, s_.e,
                r_.y + query * chunk_tokens * r_.values, r_.values);
      transpose_rows(pairs(query + correcting_), c_, c_, r_.transposed, r_.pairs);
      add_behind({r_.transposed, r_.pairs}, dy(query), r_.dstored, r_.values, c_, e_);
    }
    if (correcting_) unsolve(rest);
    transpose_rows(stored, c_, s_.e, r_.stored_transposed, r_.pairs);
    if (state) transpose_rows({state, r_.values}, s_.d, s_.e, r_.state_transposed, r_.keys);
    if (correcting_) {
      reader_back(0, {r_.dstored, r_.values}, state);
      for (int64_t t = 0; t < c_; ++t)
        for (int64_t j = 0; j < s_.d; j += L)
          add(r_.dk + t * r_.keys + j, hn::Neg(hn::LoadU(df, r_.dx + t * r_.keys + j)));
    }
    for (int64_t query = 0; query < s_.queries; ++query) {
      reader_back(query + correcting_, dy(query), state);
      if (b_.dq) give({r_.dx, r_.keys}, s_.scale, s_.d, b_.dq + query * s_.query_stride, b_.dq_stride);
    }
    if (b_.dk) give({r_.dk, r_.keys}, 1, s_.d, b_.dk, b_.dk_stride);
    if (b_.dv) give({r_.dstored, r_.values}, 1, s_.e, b_.dv, s_.v_stride);
    if (b_.ddecay && s_.decay_each) give({r_.dlog, r_.keys}, 1, s_.d, b_.ddecay, s_.decay_stride);
    for (int64_t t = 0; b_.ddecay && !s_.decay_each && t < c_; ++t) {
      V sum = hn::Zero(df);
      for (int64_t j = 0; j < s_.d; j += L) sum = hn::Add(sum, hn::LoadU(df, r_.dlog + t * r_.keys + j));
      b_.ddecay[(begin_ + t) * s_.decay_stride] = sum_lanes(sum);
    }
  }

  /// Converts dstored, the gradient of stored values, to that of the rests.
  void unsolve(const float* rest) const {
    const Rows m = pairs(0);
    transpose_rows(m, c_, c_, r_.transposed, r_.pairs);
    for (int64_t at = (c_ - 1) / span * span; at >= 0; at -= span) {
      const int64_t end = at + span < c_ ? at + span : c_;
      if (end < c_)
        multiply({r_.transposed + at * r_.pairs + end, r_.pairs}, {r_.dstored + end * r_.values, r_.values},
                 r_.dstored + at * r_.values, r_.values, end - at, c_ - end, e_, true);
      for (int64_t t = end; t-- > at;) {
        V slope = hn::Zero(df);
        for (int64_t j = 0; j < s_.e; j += L) {
          float* to = r_.dstored + t * r_.values + j;
          V sum = hn::LoadU(df, to);
          for (int64_t i = t + 1; i < end; ++i)
            sum = hn::MulAdd(hn::Set(df, m[i][t]), hn::LoadU(df, r_.dstored + i * r_.values + j), sum);
          slope = hn::MulAdd(sum, hn::LoadU(df, rest + t * r_.values + j), slope);
          hn::StoreU(hn::Mul(sum, rate(t)), df, to);
        }
        if (b_.dbeta) b_.dbeta[(begin_ + t) * b_.dbeta_stride] = sum_lanes(slope);
      }
    }
  }

  /// Gradients of a reader's results, dresult: dx, and contributions to dk, dlog and dstate.
  void reader_back(int64_t reader, Rows dresult, const float* state) const {
    clear(r_.dx, rows_ * r_.keys);
    multiply_pairs(dresult, {r_.stored_transposed, r_.pairs}, r_.dm, r_.pairs, c_, s_.e);
    clear(r_.dm + c_ * r_.pairs, (rows_ - c_) * r_.pairs);
    for (int64_t t = 0; reader < correcting_ && t < c_; ++t) r_.dm[t * r_.pairs + t] = 0;
    for (int64_t at = 0; at < c_; at += span) span_back(reader, at);
    for (int64_t half = span; half < c_; half *= 2)
      for (int64_t at = 0; at + half < c_; at += 2 * half) {
        const int64_t mid = at + half, end = mid + half < c_ ? mid + half : c_;
        const Rows dm{r_.dm + mid * r_.pairs + at, r_.pairs};
        leave(at, mid);
        enter(reader, mid, end);
        multiply(dm, {r_.left, r_.keys}, r_.dscaled, r_.keys, end - mid, half, d_, false);
        transpose_rows(dm, end - mid, half, r_.transposed, r_.pairs);
        multiply({r_.transposed, r_.pairs}, {r_.entered, r_.keys}, r_.dleft, r_.keys, half, end - mid, d_, false);
        entered_back(mid, end);
        left_back(at, mid);
      }
    if (!state) return;  // the initial state is zero
    enter(reader, 0, c_);
    multiply(dresult, {r_.state_transposed, r_.keys}, r_.dscaled, r_.keys, c_, s_.e, d_, false);
    entered_back(0, c_);
    transpose_rows({r_.entered, r_.keys}, c_, s_.d, r_.transposed, r_.pairs);
    multiply({r_.transposed, r_.pairs}, dresult, r_.dstate, r_.values, s_.d, c_, e_, true);
  }

  /// pairs_of_span, backwards: recomputes a key's faded rows, then passes their gradient through them.
  void span_back(int64_t reader, int64_t first) const {
    for (int64_t j = 0; j < s_.d; j += L) {
      V asks[span], decays[span], dasks[span], dlogs[span];
#pragma GCC unroll 8
      for (int t = 0; t < span; ++t) {
        asks[t] = hn::LoadU(df, x(reader)[first + t] + j);
        decays[t] = decay(first + t, j);
        dasks[t] = dlogs[t] = hn::Zero(df);
      }
#pragma GCC unroll 8
      for (int i = 0; i < span; ++i) {
        V keys[span], dkey = hn::Zero(df);
        keys[i] = hn::LoadU(df, k()[first + i] + j);
#pragma GCC unroll 8
        for (int t = i + 1; t < span; ++t) keys[t] = hn::Mul(keys[t - 1], decays[t]);
#pragma GCC unroll 8
        for (int t = span - 1; t >= i; --t) {
          const V slope = hn::Set(df, r_.dm[(first + t) * r_.pairs + first + i]);
          dkey = hn::MulAdd(slope, asks[t], dkey);
          dasks[t] = hn::MulAdd(slope, keys[t], dasks[t]);
          if (t == i) continue;
          dlogs[t] = hn::MulAdd(dkey, keys[t], dlogs[t]);
          dkey = hn::Mul(dkey, decays[t]);
        }
        add(r_.dk + (first + i) * r_.keys + j, dkey);
      }
#pragma GCC unroll 8
      for (int t = 0; t < span; ++t) {
        add(r_.dx + (first + t) * r_.keys + j, dasks[t]);
        add(r_.dlog + (first + t) * r_.keys + j, dlogs[t]);
      }
    }
  }

  /// Rows that entered after `begin`, with gradient dscaled: gradients of x, and of the factors in between.
  void entered_back(int64_t begin, int64_t end) const {
    for (int64_t j = 0; j < s_.d; j += L) {
      V factor = hn::Set(df, 1.0f), sum = hn::Zero(df);
      for (int64_t t = begin; t < end; ++t) {
        factor = hn::Mul(factor, decay(t, j));
        add(r_.dx + t * r_.keys + j, hn::Mul(hn::LoadU(df, r_.dscaled + (t - begin) * r_.keys + j), factor));
      }
      for (int64_t t = end; t-- > begin;) {
        const int64_t row = (t - begin) * r_.keys + j;
        sum = hn::MulAdd(hn::LoadU(df, r_.entered + row), hn::LoadU(df, r_.dscaled + row), sum);
        add(r_.dlog + t * r_.keys + j, sum);
      }
    }
  }

  /// Rows that left for `end`, with gradient dleft: gradients of k, and of the factors in between.
  void left_back(int64_t begin, int64_t end) const {
    for (int64_t j = 0; j < s_.d; j += L) {
      V factor = hn::Set(df, 1.0f), sum = hn::Zero(df);
      for (int64_t i = end; i-- > begin;) {
        add(r_.dk + i * r_.keys + j, hn::Mul(hn::LoadU(df, r_.dleft + (i - begin) * r_.keys + j), factor));
        factor = hn::Mul(factor, decay(i, j));
      }
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = (i - begin) * r_.keys + j;
        add(r_.dlog + i * r_.keys + j, sum);
        sum = hn::MulAdd(hn::LoadU(df, r_.left + row), hn::LoadU(df, r_.dleft + row), sum);
      }
    }
  }

  /// The state crosses the whole chunk: fades dstate, and adds to the gradients of all factors of a key.
  void across_back(const float* state) const {
    float* crossed = r_.dscaled;
    clear(crossed, r_.keys);
    for (int64_t i = 0; i < s_.d; ++i) {
      const V factor = hn::Set(df, r_.across[i]);
      V sum = hn::Zero(df);
      for (int64_t j = 0; j < s_.e; j += L) {
        float* slope = r_.dstate + i * r_.values + j;
        const V faded = hn::Mul(hn::LoadU(df, slope), factor);
        sum = hn::MulAdd(hn::LoadU(df, state + i * r_.values + j), faded, sum);
        hn::StoreU(faded, df, slope);
      }
      crossed[i] = sum_lanes(sum);
    }
    for (int64_t t = 0; t < c_; ++t)
      for (int64_t j = 0; j < s_.d; j += L) add(r_.dlog + t * r_.keys + j, hn::LoadU(df, crossed + j));
  }

  static HWY_INLINE void add(float* to, V x) { hn::StoreU(hn::Add(hn::LoadU(df, to), x), df, to); }
  const ChunkedBack& b_;
};

void run(const ChunkedRun& run) {
  const StateTokens& s = run.of;
  const ChunkWorkspace workspace(s.d, s.e, s.queries, s.queries + (s.beta ? 1 : 0), 0, run.workspace);
  Chunks chunks(s, workspace);
  for (int64_t begin = 0; begin < s.tokens; begin += chunk_tokens) {
    const float* state = begin ? workspace.states : nullptr;
    const int64_t count = s.tokens - begin < chunk_tokens ? s.tokens - begin : chunk_tokens;
    chunks.load(begin, count, true);
    chunks.store_values(state, workspace.rest);
    chunks.results(run, state);
    if (begin + count < s.tokens) chunks.advance(state, workspace.states);
  }
}

void back(const ChunkedBack& back) {
  const StateTokens& s = back.of;
  const ChunkWorkspace workspace(s.d, s.e, s.queries, s.queries + (s.beta ? 1 : 0), s.tokens, back.workspace);
  ChunksBack(back, workspace).run();
}

constexpr ChunkedTiles chunked{run, back};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const ChunkedTiles& chunked_tiles(Isa isa) { return PLAIT_OF_ISA(isa, chunked); }

}  // namespace plait::cpu
#endif
