#pragma once
// Which slot holds which adapter: the book-keeping. The bytes are the store's (AdaptedLinear in core/passes/adapters.h).
#include <memory>
#include <string>
#include <vector>

#include "core/generate/engine.h"

namespace plait {

class AdapterSlots {
 public:
  explicit AdapterSlots(const Decoder& decoder);

  /// A free slot for an adapter, which fits the decoder. Throws Error: invalid_argument (it fits no Linear, its rank is too
  /// large), bad_model (not finite), overloaded (no slot is free), unsupported (the decoder has no room for adapters).
  std::shared_ptr<const Adapter> take(const std::string& name, const AdapterWeights& weights);
  /// One that somebody holds and has these contents; null: none.
  std::shared_ptr<const Adapter> find(uint64_t contents) const;
  /// What the slot's rows of "adapter.a.<index>" and "adapter.b.<index>" become: [rank, k] and [n, rank], alpha / rank in b,
  /// zeros behind a smaller rank and where the adapter has nothing.
  std::pair<Tensor, Tensor> rows(size_t index, const AdapterWeights& weights) const;

 private:
  void check(const AdapterWeights& weights) const;
  size_t free_slot() const;

  const Decoder& decoder_;
  std::vector<std::weak_ptr<const Adapter>> slots_;
  uint64_t taken_ = 0;  ///< so far
};

}  // namespace plait
