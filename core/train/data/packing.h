#pragma once
// Packs a step's samples into ragged rows; a rank runs one row at a time.
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"
#include "core/train/data/dataset.h"

namespace plait {

/// One ragged row of t tokens: concatenated documents. All lists have t elements.
struct PackedRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> positions;  ///< within the document, from 0
  std::vector<int32_t> segments;   ///< index of the document in the row, from 0; -1: padding
  std::vector<int32_t> samples;    ///< index of the document in the step
  std::vector<int32_t> labels;     ///< next id of the document; -1: not counted

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
  auto fields() { return std::tie(ids, positions, segments, samples, labels); }
};

/// Sample numbers by micro-batch, data rank and row position.
using RowPlan = std::vector<std::vector<std::vector<int64_t>>>;

/// Packs samples of `lengths` tokens into rows of at most `row_tokens`: longest first, each into the row with the
/// fewest tokens ("worst fit, decreasing"), in as few micro-batches as that allows, but `at_least` if there are samples
/// for them, and at least one. This balances the
/// ranks of a micro-batch; rows may be empty if there are fewer samples than rows. Deterministic. Throws
/// Error(invalid_argument) for a sample that is longer than a row.
RowPlan plan_rows(std::span<const int64_t> lengths, int64_t row_tokens, int64_t ranks, int64_t at_least = 1);

/// The samples of these numbers, in this order, as a row.
PackedRow fill_row(std::span<const TrainingSample> samples, std::span<const int64_t> numbers);

/// Positions of a row in attention, after each document got a prefix. All lists but the last have one element per
/// position.
struct Places {
  std::vector<int32_t> tokens;    ///< index of the token in the row; arbitrary for a prefix
  std::vector<int32_t> prefixes;  ///< index of the token in the prefix; arbitrary for other positions
  std::vector<uint8_t> is_prefix;
  std::vector<int32_t> segments;
  std::vector<int32_t> of_tokens;  ///< position of each token

  /// Appends `count` positions without a segment.
  void pad(size_t count);
};
Places places_of(const PackedRow& row, int64_t prefix);

/// Appends padding up to `tokens`: id 0 at position 0, without segment and label.
void pad_row(PackedRow& row, int64_t tokens);

/// A step of all data ranks. A rank that needs only its own rows plans and fills these.
struct PackedStep {
  std::vector<std::vector<PackedRow>> rows;  ///< [micro-batch][data rank]
  int64_t tokens = 0;                        ///< without padding
  int64_t targets = 0;                       ///< counted labels: divisor of the sum of all rows' losses
};
/// `at_least`: micro-batches, as plan_rows.
PackedStep pack_step(std::span<const TrainingSample> samples, int64_t row_tokens, int64_t ranks,
                     int64_t at_least = 1);

/// Host documents of equal length, in order: `ids` and `labels` are i32 or i64 [n, s]; label -1 does not count.
/// Default labels are the next ids. Throws Error(invalid_argument) for other tensors, and for documents that are
/// longer than a row.
PackedStep pack_documents(const TensorView& ids, const TensorView* labels, int64_t row_tokens, int64_t ranks,
                          int64_t at_least = 1);

}  // namespace plait
