#pragma once
// Splits a micro-batch into the parts of the data ranks.
#include <span>
#include <string>
#include <vector>

#include "core/passes/train/compile_training.h"
#include "core/train/micro_batch.h"

namespace plait {

/// A row as input of the programs: all ranks of a mesh have equal numbers of tokens and labels.
struct TrainingRow {
  PackedRow row;                      ///< its labels are in `rows` and `labels`
  std::vector<int32_t> rows, labels;  ///< tokens with labels, and their labels
  std::vector<float> weights;         ///< per label
  std::vector<int64_t> keys;          ///< per token, for dropout; -1: none
  Places places = {};                 ///< for a prefix
};

/// A data rank's part of a micro-batch: a row, or named inputs.
struct RankBatch {
  TrainingRow row;
  NamedInputs inputs;
  TensorView gradient = {};  ///< f32 [1, r, v] of the row's r tokens, or absent
  double weight = 1;  ///< of a graph's own loss
  bool last = false;
};

/// Splits micro-batches of one trainer, which must outlive this.
class BatchSplitter {
 public:
  /// `step`: updates done before, for dropout.
  BatchSplitter(const TrainingOptions& training, const TrainingModel& model, int64_t step)
      : training_(training), model_(model), data_ranks_(model.mesh.blocks(model.mesh.parts("data"))), step_(step) {}

  /// By data rank, padded to the longest; padding does not count. Empty if no label counts. Throws
  /// Error(invalid_argument) for a batch that does not fit the programs.
  std::vector<RankBatch> split(const MicroBatch& batch, bool dropout) const;
  /// The same for the logits of all tokens, with or without labels.
  std::vector<RankBatch> split_for_logits(std::span<const PackedRow> rows) const;
  /// `part`, of data rank `data`, with its part of batch.gradient; `memory` owns that if it was padded.
  RankBatch with_gradient(const RankBatch& part, const MicroBatch& batch, int64_t data, Tensor& memory) const;

 private:
  int64_t check(std::span<const PackedRow> rows) const;
  void check(const NamedInputs& inputs) const;
  std::vector<RankBatch> split_inputs(const MicroBatch& batch) const;
  void pad(std::vector<RankBatch>& parts, int64_t tokens, bool dropout) const;
  std::vector<int64_t> dropout_keys(const PackedRow& row) const;

  const TrainingOptions& training_;
  const TrainingModel& model_;
  const int64_t data_ranks_;
  const int64_t step_;
};

/// Rows `begin` to `begin + count` of f32 [..., n, width].
TensorView rows_of(const TensorView& all, int64_t begin, int64_t count);

}  // namespace plait
