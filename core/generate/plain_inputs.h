#pragma once
// The inputs of a language model's graph as written.
#include <span>
#include <vector>

#include "core/generate/given_rows.h"
#include "core/passes/base/decoder.h"

namespace plait {

/// Makes the inputs of each run of one sequence. Immutable.
class PlainInputs {
 public:
  /// `context`: tokens for which buffers of open length should suffice; 0: a usual length. Throws Error(unsupported) for an input
  /// without a role, or of unknown size.
  PlainInputs(const Graph& graph, const DecoderInterface& interface, int64_t context);

  /// The graph's inputs, in order, for `tokens` after `past` others. `carried`: outputs of the last run, by number of cache, then of
  /// counter; not present before the first run.
  /// `position`: of the first token (Sequence::next_position); equal to `past` without places. `given`: rows of the tokens whose ids are
  /// negative. `encoded`: values of the interface's `encoded`.
  std::vector<Tensor> of(std::span<const int32_t> tokens, int64_t past, int64_t position,
                         std::span<const Tensor> carried, GivenList given, std::span<const Tensor> encoded) const;

  /// Values that a run passes to the next: caches, then counters.
  size_t carried_count() const { return shapes_.size(); }
  int64_t buffer_length() const { return buffer_length_; }  ///< of past inputs of fixed length; 0: they grow
  int64_t token_bytes() const { return token_bytes_; }      ///< by which the caches grow

 private:
  enum class Role : uint8_t { ids, mask, positions, branch, carried, given, given_at, encoded, encoded_mask };
  struct Input {
    Role role = Role::ids;
    DType dtype = DType::none;
    size_t number = 0;  ///< of the carried or encoded value
  };
  Input input_of(const Graph& graph, ValueId id) const;
  void read_caches(const Graph& graph, int64_t context);
  Tensor positions(DType dtype, std::span<const int32_t> tokens, int64_t past, int64_t position,
                   GivenList given) const;
  Tensor causal_mask(DType dtype, int64_t past, int64_t count) const;
  Tensor carried(size_t number, DType dtype, int64_t past, const Tensor& kept) const;

  const DecoderInterface interface_;
  std::vector<Input> inputs_;
  std::vector<Shape> shapes_;  ///< of carried values before the first token, batch 1
  Shape branch_shape_;
  int64_t buffer_length_ = 0, token_bytes_ = 0;
  bool flat_positions_ = false;  ///< positions are [s]
  bool mask_by_token_ = false;   ///< the mask is per token and key
};

}  // namespace plait
