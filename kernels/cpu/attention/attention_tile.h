#pragma once
// Per-target code of plait.PagedAttention: some query rows with a range of pages, with a running softmax.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Accumulated state of rows: row i's largest score, the sum of exp(score - largest), and the sum of exp(score -
/// largest) * value in e floats at `values + i * e`. A row without visible keys has largest = -infinity.
struct AttentionSums {
  float* largest;
  float* total;
  float* values;
};

/// The query rows of some tokens and of the r heads that share one kv head: row = token * heads + head, with pages
/// [first_page, last_page) of their segment.
///
/// The order of operations of a row is fixed: pages ascending; a score is a sum over d in ascending order by fma; a
/// page's keys are added in ascending order. It does not depend on other rows, on page locations, or on `rows`.
struct AttentionSpan {
  const float* q;  ///< [tokens * heads, d]
  int64_t tokens, heads, d, e;
  const int32_t* positions;  ///< of the tokens
  const uint8_t* k_pages;    ///< of this kv head: page i's [d, c] at k_pages + i * k_stride (bytes)
  const uint8_t* v_pages;    ///< page i's [c, e] at v_pages + i * v_stride
  int64_t k_stride, v_stride, c;
  DType dtype;                ///< of the pages: f32 or bf16
  const uint8_t* page_table;  ///< the segment's row, i32 at any alignment
  int64_t first_page, last_page;
  float scale, softcap;  ///< softcap 0: none
  int64_t window;        ///< 0: none; otherwise keys from position - window + 1 on
  const float* slopes;   ///< of the heads, or null
  AttentionSums sums;    ///< result; overwritten
  float* scores;         ///< scratch: tokens * heads rows of score_stride(c) floats
  uint32_t* pairs;       ///< scratch: tokens * heads rows of pair_stride(d)
};

/// Keys of a page that a query sees: [begin, end) within the page.
struct Visible {
  int64_t begin, end;
  bool operator==(const Visible&) const = default;
};

struct AttentionTiles {
  void (*span)(const AttentionSpan& span);
  /// Converts a row's scores of one page to weights exp(score - largest), 0 for keys that it does not see; updates `largest` and
  /// `total` and returns the factor for values accumulated before. `distance`: position of the page's first key - the query's.
  float (*weigh)(const AttentionSpan& span, float* scores, Visible keys, int64_t distance, float slope,
                 float& largest, float& total);
  /// Adds `part` of `rows` rows to `sums`, in a fixed order of operations.
  void (*merge)(const AttentionSums& sums, const AttentionSums& part, int64_t rows, int64_t e);
  /// y[row] = values / total, with exp(sink) added to the total if `sinks` [rows] is given; 0 for rows without
  /// visible keys.
  void (*finish)(const AttentionSums& sums, const float* sinks, int64_t rows, int64_t e, float* y);
};

/// From avx512_bf16 on: bf16_attention_tiles.
const AttentionTiles& attention_tiles(Isa isa);
/// For pages of bf16, with queries and weights rounded to bf16. Another order of operations: those of keys 2 i and 2 i + 1, and of
/// numbers 2 i and 2 i + 1 of a query, are one step.
const AttentionTiles& bf16_attention_tiles();
/// The same with emulated instructions, for tests on other processors (they need AVX-512).
const AttentionTiles& emulated_bf16_attention_tiles();

/// A row of scores is padded to whole vectors of any width.
inline int64_t score_stride(int64_t c) { return (c + 15) / 16 * 16; }
/// Pairs of bf16 numbers of a row of d numbers, padded to whole vectors.
inline int64_t pair_stride(int64_t d) { return (d + 31) / 32 * 16; }

/// Keys of the page from `base` that a query at `position` sees.
inline Visible visible_keys(int64_t position, int64_t window, int64_t base, int64_t c) {
  int64_t first = window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
  int64_t begin = first > base ? first - base : 0, end = position - base + 1 < c ? position - base + 1 : c;
  return begin < end ? Visible{begin, end} : Visible{0, 0};
}

/// Sets the sums to no keys; then calls rows(k, v, base, begin, end) for each page, whose first key is at `base`, and rows [begin, end)
/// that see some of its keys.
template <class Rows>
void each_page(const AttentionSpan& s, Rows rows) {
  const int64_t all = s.tokens * s.heads;
  for (int64_t row = 0; row < all; ++row) s.sums.largest[row] = -HUGE_VALF, s.sums.total[row] = 0;
  memset(s.sums.values, 0, static_cast<size_t>(all * s.e) * sizeof(float));
  for (int64_t page = s.first_page; page < s.last_page; ++page) {
    int32_t place;
    memcpy(&place, s.page_table + page * 4, 4);
    if (place < 0) continue;  // freed: not visible here (checked by the caller)
    auto sees = [&](int64_t token) {
      Visible keys = visible_keys(s.positions[token], s.window, page * s.c, s.c);
      return keys.begin < keys.end;
    };
    for (int64_t token = 0; token < s.tokens;) {
      int64_t end = token;
      while (end < s.tokens && sees(end)) ++end;
      if (end > token)
        rows(s.k_pages + place * s.k_stride, s.v_pages + place * s.v_stride, page * s.c, token * s.heads,
             end * s.heads);
      token = std::max(end, token + 1);
    }
  }
}

}  // namespace plait::cpu
