#pragma once
// From a step's samples to ragged rows: what one rank runs at once.
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"
#include "core/train/data/dataset.h"

namespace plait {

/// One ragged row of t tokens: documents one behind the other. All lists are t long.
struct PackedRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  ///< within the document, from 0 on
  std::vector<int32_t> segments;   ///< the document's number in the row, from 0 on; -1: padding
  std::vector<int32_t> samples;    ///< the document's number in the step
  std::vector<int32_t> labels;     ///< the id behind it in the document; -1: nothing counts here

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  auto fields() { return std::tie(ids, positions, segments, samples, labels); }
};

/// Which samples go into which row: for each micro-batch, and in it for each data rank, their numbers.
using RowPlan = std::vector<std::vector<std::vector<int64_t>>>;

/// Puts samples of `lengths` tokens into rows of at most `row_tokens`: the longest first, each into the row that has the
/// fewest tokens so far ("worst fit, decreasing"), in as few micro-batches as that allows, at least one. So the ranks of
/// a micro-batch have about the same to do; a row may stay empty where there are fewer samples than rows. Depends on its
/// arguments alone. Throws Error(invalid_argument) for a sample that is longer than a row.
RowPlan plan_rows(std::span<const int64_t> lengths, int64_t row_tokens, int64_t ranks);

/// The samples of these numbers, in this order, as a row.
PackedRow fill_row(std::span<const Sample> samples, std::span<const int64_t> numbers);

/// Where a row's tokens stand once each document has a prefix of some tokens in front: what attention goes over. Lists but the
/// last have one number a place.
struct Places {
  std::vector<int32_t> tokens;    ///< the token of the row; of a prefix, any
  std::vector<int32_t> prefixes;  ///< the token of the prefix; of other places, any
  std::vector<uint8_t> is_prefix;
  std::vector<int32_t> segments;
  std::vector<int32_t> of_tokens;  ///< by token: its place

  /// More of them, in no segment.
  void pad(size_t count);
};
Places places_of(const PackedRow& row, int64_t prefix);

/// Appends padding up to `tokens`: id 0 at position 0, in no segment, without a label.
void pad_row(PackedRow& row, int64_t tokens);

/// A step of all data ranks. A rank that wants its own rows alone plans, and fills these.
struct PackedStep {
  std::vector<std::vector<PackedRow>> rows;  ///< for each micro-batch, one for each data rank
  int64_t tokens = 0;                        ///< without padding
  int64_t targets = 0;                       ///< labels that count: the step's loss is the sum of all rows' over this
};
PackedStep pack_step(std::span<const Sample> samples, int64_t row_tokens, int64_t ranks);

/// Documents of one length that a host has in memory, in their order: `ids` and `labels` are i32 or i64 [n, s]; a label of -1
/// does not count. Without labels each id's is the one behind it. Throws Error(invalid_argument) for other tensors, and for
/// documents that are longer than a row.
PackedStep pack_documents(const TensorView& ids, const TensorView* labels, int64_t row_tokens, int64_t ranks);

}  // namespace plait
