#pragma once
// Which adapters there are, and which slot holds which: the book-keeping. The bytes are the store's: of slots (AdaptedLinear in
// core/passes/base/adapters.h), or, of prefixes, of the cache.
#include <memory>
#include <string>
#include <vector>

#include "core/generate/engine.h"

namespace plait {

class AdapterSlots {
 public:
  explicit AdapterSlots(const Decoder& decoder);

  /// An adapter that fits the decoder, in a free slot if it is low-rank. Throws Error: invalid_argument (it fits no Linear, its
  /// rank is too large, its prefix is of another shape), bad_model (not finite), overloaded (no slot is free), unsupported (the
  /// decoder has no room for adapters, or takes no prefix).
  std::shared_ptr<const Adapter> take(const std::string& name, const AdapterWeights& weights);
  /// One that somebody holds and has these contents; null: none.
  std::shared_ptr<const Adapter> find(uint64_t contents) const;
  /// What the slot's rows of "adapter.a.<index>" and "adapter.b.<index>" become: [rank, k] and [n, rank], alpha / rank in b,
  /// zeros behind a smaller rank and where the adapter has nothing.
  std::pair<Tensor, Tensor> rows(size_t index, const AdapterWeights& weights) const;

 private:
  void check(const AdapterWeights& weights) const;
  void check_low_rank(const AdapterWeights& weights) const;
  size_t free_slot() const;

  const Decoder& decoder_;
  std::vector<std::weak_ptr<const Adapter>> slots_, prefixes_;
  uint64_t taken_ = 0;  ///< so far
};

/// A prefix as pages of the cache hold it.
class PagesOfPrefix {
 public:
  /// `weights` outlives it, and fits the decoder.
  PagesOfPrefix(const Decoder& decoder, const AdapterWeights& weights, int64_t page_tokens)
      : weights_(weights), dtype_(decoder.cache_dtype), page_tokens_(page_tokens) {}
  /// Keys [g, d, c] or values [g, c, d] of a layer in the `page`-th c places, whole; zeros behind the prefix's end.
  Tensor row(int layer, int64_t page, bool values) const;

 private:
  const AdapterWeights& weights_;
  const DType dtype_;
  const int64_t page_tokens_;
};

}  // namespace plait
