#pragma once
// Allocation of adapter slots. The bytes are in the Store: low-rank weights in slots (AdaptedLinear in
// core/passes/base/adapters.h), prefixes in pages of the cache.
#include <memory>
#include <string>
#include <vector>

#include "core/generate/engine.h"

namespace plait {

class AdapterSlots {
 public:
  explicit AdapterSlots(const Decoder& decoder);

  /// Adds an adapter; a low-rank one takes a free slot. Throws Error: invalid_argument (it fits no Linear, its rank
  /// is too large, its prefix has another shape), bad_model (not finite), overloaded (no free slot), unsupported (the
  /// decoder was compiled without adapters, or takes no prefix).
  std::shared_ptr<const Adapter> take(const std::string& name, const AdapterWeights& weights);
  /// The live adapter with these contents; null if none.
  std::shared_ptr<const Adapter> find(uint64_t contents) const;
  /// The slot's rows of "adapter.a.<index>" and "adapter.b.<index>": [rank, k] and [n, rank], alpha / rank folded
  /// into b, zeros past a smaller rank and where the adapter has no weights.
  std::pair<Tensor, Tensor> rows(size_t index, const AdapterWeights& weights) const;

 private:
  void check(const AdapterWeights& weights) const;
  void check_low_rank(const AdapterWeights& weights) const;
  size_t free_slot() const;

  const Decoder& decoder_;
  std::vector<std::weak_ptr<const Adapter>> slots_, prefixes_;
  uint64_t taken_ = 0;  ///< adapters added so far
};

/// An adapter's prefix cut into cache pages.
class PagesOfPrefix {
 public:
  /// `weights` must outlive this and fit the decoder.
  PagesOfPrefix(const Decoder& decoder, const AdapterWeights& weights, int64_t page_tokens)
      : weights_(weights), dtype_(decoder.cache_dtype), page_tokens_(page_tokens) {}
  /// Keys [g, d, c] or values [g, c, d] of page `page` of a layer, c tokens each; zeros past the end of the prefix.
  Tensor row(int layer, int64_t page, bool values) const;

 private:
  const AdapterWeights& weights_;
  const DType dtype_;
  const int64_t page_tokens_;
};

}  // namespace plait
