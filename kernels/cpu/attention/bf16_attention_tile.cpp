// As attention_tile.cpp, for pages of bf16 numbers, with vdpbf16ps: a query's numbers and the weights of its keys are rounded to bf16, and
// a step takes two of them. A weight that is not rounded counts in the total.
#include <array>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/gemm/bf16_tile.h"

namespace plait::cpu {
namespace {

constexpr int64_t lanes = pair_lanes, wide = 2 * lanes;
constexpr int most_rows = 8;  ///< 8 x 2 sums, two vectors of pairs and what makes them

PLAIT_BEGIN_AVX512_BF16

inline __mmask32 wide_mask(int64_t count) {
  return count >= wide ? 0xFFFFFFFFu : count > 0 ? (__mmask32{1} << count) - 1 : 0;
}

/// Numbers of a and of b in turn: as pairs, the first 16 of them and the others.
struct Interleaved {
  __m512i low, high;

  Interleaved(__m512i a, __m512i b) {
    alignas(64) static constexpr auto order = [] {
      std::array<uint16_t, 2 * wide> out{};
      for (uint16_t i = 0; i < wide; ++i) out[2 * i] = i, out[2 * i + 1] = static_cast<uint16_t>(wide + i);
      return out;
    }();
    low = _mm512_permutex2var_epi16(a, _mm512_load_si512(order.data()), b);
    high = _mm512_permutex2var_epi16(a, _mm512_load_si512(order.data() + wide), b);
  }
};

/// Adds the products of `one`'s pairs, `stride` apart for each row, with 32 columns.
template <class Op, int ROWS>
inline __attribute__((always_inline)) void add_pair(__m512 (&sums)[ROWS][2], const uint32_t* one, int64_t stride,
                                                    __m512i a, __m512i b) {
  const Interleaved columns(a, b);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
    const __m512i left = _mm512_set1_epi32(static_cast<int>(one[i * stride]));
    sums[i][0] = Op::dot(sums[i][0], left, columns.low);
    sums[i][1] = Op::dot(sums[i][1], left, columns.high);
  }
}

/// Scores of ROWS queries, as pairs, with all keys of a page [d, c].
template <class Op, int ROWS>
void scores_of(const uint32_t* q, int64_t d, const uint8_t* k, int64_t c, float* scores, int64_t ld) {
  const int64_t row = c * 2, stride = pair_stride(d);
  for (int64_t key = 0; key < c; key += wide) {
    const __mmask32 mask = wide_mask(c - key);
    const uint8_t* at = k + key * 2;
    __m512 sums[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int64_t pair = 0; pair < d / 2; ++pair, at += 2 * row)
      add_pair<Op>(sums, q + pair, stride, _mm512_maskz_loadu_epi16(mask, at),
                   _mm512_maskz_loadu_epi16(mask, at + row));
    if (d % 2) add_pair<Op>(sums, q + d / 2, stride, _mm512_maskz_loadu_epi16(mask, at), _mm512_setzero_si512());
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      _mm512_storeu_ps(scores + i * ld + key, sums[i][0]);
      if (key + lanes < ld) _mm512_storeu_ps(scores + i * ld + key + lanes, sums[i][1]);
    }
  }
}

/// values[i] = values[i] * shrink[i] + sum over keys of weights[i] v; weights as pairs of keys, rows ld pairs apart. Keys of a pair that
/// no row sees are not read.
template <class Op, int ROWS>
void add_values(const uint32_t* weights, int64_t ld, Visible keys, const uint8_t* v, int64_t e, const float* shrink,
                float* values) {
  for (int64_t column = 0; column < e; column += wide) {
    const int64_t count = e - column;
    const __mmask32 mask = wide_mask(count);
    const __mmask16 low = mask_of(count), high = mask_of(count - lanes);
    __m512 sums[ROWS][2];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      const __m512 factor = _mm512_set1_ps(shrink[i]);
      const float* from = values + i * e + column;
      sums[i][0] = _mm512_mul_ps(_mm512_maskz_loadu_ps(low, from), factor);
      sums[i][1] = _mm512_mul_ps(_mm512_maskz_loadu_ps(high, from + lanes), factor);
    }
    for (int64_t key = keys.begin / 2 * 2; key < keys.end; key += 2) {
      const uint8_t* at = v + (key * e + column) * 2;
      add_pair<Op>(sums, weights + key / 2, ld, _mm512_maskz_loadu_epi16(key >= keys.begin ? mask : 0, at),
                   _mm512_maskz_loadu_epi16(key + 1 < keys.end ? mask : 0, at + e * 2));
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      float* to = values + i * e + column;
      _mm512_mask_storeu_ps(to, low, sums[i][0]);
      _mm512_mask_storeu_ps(to + lanes, high, sums[i][1]);
    }
  }
}

/// Rows [row, row + ROWS), each of which sees keys of the page. A key that a row does not see has weight 0 for it, which adds nothing
/// as long as its values are finite: infinite ones give NaN to the rows of the call that share the page.
template <class Op, int ROWS>
void page_rows(const AttentionSpan& s, int64_t row, const uint8_t* k, const uint8_t* v, int64_t base) {
  const auto weigh = attention_tiles(Isa::avx512).weigh;
  float shrink[ROWS];
  Visible seen{s.c, 0};
  const int64_t ld = score_stride(s.c);
  float* scores = s.scores + row * ld;
  auto* weights = reinterpret_cast<uint32_t*>(scores);  // in place of the scores
  scores_of<Op, ROWS>(s.pairs + row * pair_stride(s.d), s.d, k, s.c, scores, ld);
  for (int i = 0; i < ROWS; ++i) {
    const int64_t head = (row + i) % s.heads, position = s.positions[(row + i) / s.heads];
    const Visible keys = visible_keys(position, s.window, base, s.c);
    seen = {std::min(seen.begin, keys.begin), std::max(seen.end, keys.end)};
    shrink[i] = weigh(s, scores + i * ld, keys, base - position, s.slopes ? s.slopes[head] : 0,
                      s.sums.largest[row + i], s.sums.total[row + i]);
    for (int64_t key = 0; key < s.c; key += wide)
      _mm512_mask_storeu_epi32(weights + i * ld + key / 2, mask_of((ld - key) / 2),
                               Floats::pairs(reinterpret_cast<const uint8_t*>(scores + i * ld + key), s.c - key));
  }
  add_values<Op, ROWS>(weights, ld, seen, v, s.e, shrink, s.sums.values + row * s.e);
}

template <class Op>
void span(const AttentionSpan& s) {
  const int64_t rows = s.tokens * s.heads, stride = pair_stride(s.d);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < s.d; i += wide)
      _mm512_storeu_si512(s.pairs + row * stride + i / 2,
                          Floats::pairs(reinterpret_cast<const uint8_t*>(s.q + row * s.d + i), s.d - i));
  each_page(s, [&](const uint8_t* k, const uint8_t* v, int64_t base, int64_t begin, int64_t end) {
    for (; begin + most_rows <= end; begin += most_rows) page_rows<Op, most_rows>(s, begin, k, v, base);
    if (begin + 4 <= end) page_rows<Op, 4>(s, begin, k, v, base), begin += 4;
    if (begin + 2 <= end) page_rows<Op, 2>(s, begin, k, v, base), begin += 2;
    if (begin < end) page_rows<Op, 1>(s, begin, k, v, base);
  });
}

PLAIT_END_AVX512_BF16

AttentionTiles tiles_of(void (*span)(const AttentionSpan&)) {
  AttentionTiles tiles = attention_tiles(Isa::avx512);
  tiles.span = span;
  return tiles;
}

}  // namespace

const AttentionTiles& bf16_attention_tiles() {
  static const AttentionTiles tiles = tiles_of(span<Hardware>);
  return tiles;
}
const AttentionTiles& emulated_bf16_attention_tiles() {
  static const AttentionTiles tiles = tiles_of(span<Emulated>);
  return tiles;
}

}  // namespace plait::cpu
