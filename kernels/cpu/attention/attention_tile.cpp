#include "kernels/cpu/attention/attention_tile.h"

#include <algorithm>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/broadcast-inl.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// values[i] = values[i] * shrink[i] + sum over j in [begin, end) of p[i][j] v[j]; rows of p are ldp apart.
template <class T, int ROWS>
void add_values(const float* p, int64_t ldp, Visible keys, const uint8_t* v, int64_t e, const float* shrink,
                float* values) {
  auto columns = [&]<int N>(int64_t column, int64_t count) HWY_ATTR {
    V sums[ROWS][N];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      V factor = hn::Set(df, shrink[i]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n)
        sums[i][n] = hn::Mul(load_up_to<AsF32>(bytes(values + i * e + column + n * L), count - n * L), factor);
    }
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      V row[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) row[n] = load_up_to<T>(v + (j * e + column + n * L) * T::size, count - n * L);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) {
        V weight = hn::Set(df, p[i * ldp + j]);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) sums[i][n] = hn::MulAdd(weight, row[n], sums[i][n]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n)
        store_up_to<AsF32>(sums[i][n], bytes(values + i * e + column + n * L), count - n * L);
  };
  int64_t column = 0;
  for (; column + 2 * L <= e; column += 2 * L) columns.template operator()<2>(column, 2 * L);
  for (; column < e; column += L) columns.template operator()<1>(column, e - column);
}

/// Largest lane.
HWY_INLINE float largest_lane(V x) { return hn::GetLane(hn::MaxOfLanes(df, x)); }
HWY_INLINE float exp_of(float x) { return hn::GetLane(exp(hn::Set(df, x))); }

float weigh(const AttentionSpan& s, float* scores, Visible keys, int64_t distance, float slope, float& largest,
            float& total) {
  const V lowest = hn::Set(df, -HUGE_VALF);
  V most = lowest;
  for (int64_t j = 0; j < s.c; j += L) {
    V x = hn::Mul(hn::LoadU(df, scores + j), hn::Set(df, s.scale));
    if (s.softcap != 0) x = hn::Mul(tanh(hn::Div(x, hn::Set(df, s.softcap))), hn::Set(df, s.softcap));
    auto key = hn::Add(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(j)));
    if (slope != 0) {  // key position - query position
      auto relative = hn::ConvertTo(df, hn::Add(key, hn::Set(di, static_cast<int32_t>(distance))));
      x = hn::MulAdd(hn::Set(df, slope), relative, x);
    }
    auto seen = hn::And(hn::Gt(key, hn::Set(di, static_cast<int32_t>(keys.begin - 1))),
                        hn::Lt(key, hn::Set(di, static_cast<int32_t>(keys.end))));
    x = hn::IfThenElse(hn::RebindMask(df, seen), x, lowest);
    hn::StoreU(x, df, scores + j);
    most = hn::Max(most, x);
  }
  float before = largest, now = largest_lane(most);
  now = now > before ? now : before;
  if (now == -HUGE_VALF) now = 0;  // every visible key has score -infinity: weights 0, not NaN
  V sum = hn::Zero(df);
  for (int64_t j = 0; j < s.c; j += L) {
    V weight = exp(hn::Sub(hn::LoadU(df, scores + j), hn::Set(df, now)));
    hn::StoreU(weight, df, scores + j);
    sum = hn::Add(sum, weight);
  }
  float shrink = exp_of(before - now);
  largest = now;
  total = total * shrink + sum_lanes(sum);
  return shrink;
}

/// Rows [row, row + ROWS), each of which sees keys of the page. Keys that all of them see are added for all at once;
/// a row's keys before and after these are added for it separately, so that it keeps its order of keys.
template <class T, int ROWS>
void page_rows(const AttentionSpan& s, int64_t row, const uint8_t* k, const uint8_t* v, int64_t base) {
  float shrink[ROWS];
  Visible keys[ROWS], common{0, s.c};
  const int64_t ld = score_stride(s.c);
  float *scores = s.scores + row * ld, *values = s.sums.values + row * s.e;
  broadcast_product<T, ROWS>(s.q + row * s.d, s.d, s.d, k, s.c * T::size, scores, ld, s.c, false);
  for (int i = 0; i < ROWS; ++i) {
    const int64_t head = (row + i) % s.heads, position = s.positions[(row + i) / s.heads];
    keys[i] = visible_keys(position, s.window, base, s.c);
    common = {std::max(common.begin, keys[i].begin), std::min(common.end, keys[i].end)};
    shrink[i] = weigh(s, scores + i * ld, keys[i], base - position, s.slopes ? s.slopes[head] : 0,
                      s.sums.largest[row + i], s.sums.total[row + i]);
  }
  auto alone = [&](int i, int64_t begin, int64_t end) HWY_ATTR {
    if (begin >= end) return;
    add_values<T, 1>(scores + i * ld, ld, {begin, end}, v, s.e, shrink + i, values + i * s.e);
    shrink[i] = 1;
  };
  if (common.begin >= common.end) common = {s.c, s.c};
  for (int i = 0; i < ROWS; ++i) alone(i, keys[i].begin, std::min(keys[i].end, common.begin));
  if (common.begin == s.c) return;
  add_values<T, ROWS>(scores, ld, common, v, s.e, shrink, values);
  for (int i = 0; i < ROWS; ++i) shrink[i] = 1, alone(i, common.end, keys[i].end);
}

void span(const AttentionSpan& s) {
  each_page(s, [&](const uint8_t* k, const uint8_t* v, int64_t base, int64_t begin, int64_t end) HWY_ATTR {
    cover_rows(begin, end, [&]<int ROWS>(int64_t row) HWY_ATTR {
      if (s.dtype == DType::bf16) page_rows<AsBF16, ROWS>(s, row, k, v, base);
      else page_rows<AsF32, ROWS>(s, row, k, v, base);
    });
  });
}

void merge(const AttentionSums& sums, const AttentionSums& part, int64_t rows, int64_t e) {
  for (int64_t row = 0; row < rows; ++row) {
    float a = sums.largest[row], b = part.largest[row], most = a > b ? a : b;
    if (b == -HUGE_VALF) continue;  // the part saw no key
    float keep = exp_of(a - most), take = exp_of(b - most);
    sums.largest[row] = most;
    sums.total[row] = sums.total[row] * keep + part.total[row] * take;
    for (int64_t i = 0; i < e; i += L) {
      uint8_t *to = bytes(sums.values + row * e + i), *from = bytes(part.values + row * e + i);
      V old = hn::Mul(load_up_to<AsF32>(to, e - i), hn::Set(df, keep));
      store_up_to<AsF32>(hn::MulAdd(load_up_to<AsF32>(from, e - i), hn::Set(df, take), old), to, e - i);
    }
  }
}

void finish(const AttentionSums& sums, const float* sinks, int64_t rows, int64_t e, float* y) {
  for (int64_t row = 0; row < rows; ++row) {
    float factor = 1, total = sums.total[row];
    if (sinks) {
      float most = sums.largest[row] > sinks[row] ? sums.largest[row] : sinks[row];
      factor = exp_of(sums.largest[row] - most);
      total = total * factor + exp_of(sinks[row] - most);
    }
    V share = hn::Set(df, total != 0 ? factor / total : 0);
    for (int64_t i = 0; i < e; i += L)
      store_up_to<AsF32>(hn::Mul(load_up_to<AsF32>(bytes(sums.values + row * e + i), e - i), share),
                         bytes(y + row * e + i), e - i);
  }
}

const AttentionTiles tiles{span, weigh, merge, finish};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const AttentionTiles& attention_tiles(Isa isa) {
  if (isa >= Isa::avx512_bf16) return bf16_attention_tiles();
  return PLAIT_OF_ISA(isa, tiles);
}

}  // namespace plait::cpu
#endif
