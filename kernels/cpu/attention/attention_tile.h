#pragma once
// Per-target code of plait.PagedAttention: some query rows with a range of pages, with a running softmax.
#include <cstdint>

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
  const float* q;            ///< [tokens * heads, d]
  int64_t tokens, heads, d, e;
  const int32_t* positions;  ///< of the tokens
  const uint8_t* k_pages;    ///< of this kv head: page i's [d, c] at k_pages + i * k_stride (bytes)
  const uint8_t* v_pages;    ///< page i's [c, e] at v_pages + i * v_stride
  int64_t k_stride, v_stride, c;
  DType dtype;               ///< of the pages: f32 or bf16
  const uint8_t* page_table; ///< the segment's row, i32 at any alignment
  int64_t first_page, last_page;
  float scale, softcap;      ///< softcap 0: none
  int64_t window;            ///< 0: none; otherwise keys from position - window + 1 on
  const float* slopes;       ///< of the heads, or null
  AttentionSums sums;        ///< result; overwritten
  float* scores;             ///< scratch: tokens * heads rows of score_stride(c) floats
};

struct AttentionTiles {
  void (*span)(const AttentionSpan& span);
  /// Adds `part` of `rows` rows to `sums`, in a fixed order of operations.
  void (*merge)(const AttentionSums& sums, const AttentionSums& part, int64_t rows, int64_t e);
  /// y[row] = values / total, with exp(sink) added to the total if `sinks` [rows] is given; 0 for rows without
  /// visible keys.
  void (*finish)(const AttentionSums& sums, const float* sinks, int64_t rows, int64_t e, float* y);
};

const AttentionTiles& attention_tiles(Isa isa);

/// Keys of the page from `base` that a query at `position` sees: [begin, end) within the page.
struct Visible {
  int64_t begin, end;
  bool operator==(const Visible&) const = default;
};
/// A row of scores is padded to whole vectors of any width.
inline int64_t score_stride(int64_t c) { return (c + 15) / 16 * 16; }

inline Visible visible_keys(int64_t position, int64_t window, int64_t base, int64_t c) {
  int64_t first = window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
  int64_t begin = first > base ? first - base : 0, end = position - base + 1 < c ? position - base + 1 : c;
  return begin < end ? Visible{begin, end} : Visible{0, 0};
}

}  // namespace plait::cpu
