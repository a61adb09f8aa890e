#pragma once
// Launches of attention.cu.
//
// The keys of a token are cut into splits of `split_keys` by their position, whatever the batch. A split has a part: the largest score,
// the sum of exp(score - largest), and the values weighted with these. Parts are joined in ascending order. So a token has the same bits
// in a prompt as when it is generated, in any company, whether its splits are blocks of their own (few tokens: parts go to memory,
// and another kernel joins them) or one block's loop.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

constexpr int attention_threads = 128, split_keys = 256;
constexpr int heads_of_block = 8;   ///< query heads of a kv head that share its keys
constexpr int64_t few_tokens = 64;  ///< up to which splits are blocks of their own

/// q [tokens, g r, d], keys [p, g, d, c], values [p, g, c, e] -> y [tokens, g r, e].
struct AttentionOperands {
  const float* q;
  const void *keys, *values;
  float *y, *parts;  ///< parts [tokens, g r, splits, e + 2]: only of few tokens
  Indices positions, segments, pages;
  const void *sinks, *slopes;  ///< [g r]; null: there are none
  Element sink_element, slope_element;
  FaultReport report;
  int64_t page_count;
  int32_t g, r, d, e, c;
  int32_t segment_count, columns;  ///< of the page table
  int32_t window;                  ///< keys that a token sees, itself included; 0: all
  float scale, softcap;            ///< softcap 0: none
};

inline int64_t splits_of(int64_t columns, int64_t c) { return ceil_div(columns * c, split_keys); }
/// Query, scores, joined values.
inline unsigned attention_shared_bytes(int64_t d, int64_t e) {
  return static_cast<unsigned>(heads_of_block * (d + split_keys + e) * 4);
}
inline Geometry attention_geometry(int64_t tokens, int64_t g, int64_t r, int64_t splits, int64_t d, int64_t e) {
  return {static_cast<unsigned>(tokens), static_cast<unsigned>(g * ceil_div(r, heads_of_block)),
          static_cast<unsigned>(tokens <= few_tokens ? splits : 1), attention_threads, attention_shared_bytes(d, e)};
}
/// A block a token and head.
inline Geometry join_geometry(int64_t tokens, int64_t heads) {
  return {static_cast<unsigned>(tokens), static_cast<unsigned>(heads), 1, attention_threads};
}

}  // namespace plait::cuda
