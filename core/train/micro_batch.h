#pragma once
// Input of one forward and backward pass on all data ranks.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"
#include "core/train/data/packing.h"

namespace plait {

/// Tensors by graph input name.
using NamedInputs = std::map<std::string, TensorView, std::less<>>;

/// Rows of a recognised decoder, or inputs of a graph with its own loss (TrainingOptions::loss).
struct MicroBatch {
  std::vector<PackedRow> rows;  ///< one per data rank; may be empty
  NamedInputs inputs;           ///< of the whole batch, which is split over data ranks
  /// With TrainingOptions::host_loss: the gradients of the host's loss with respect to the logits of all tokens of
  /// the rows in order, f32 [tokens, v]; labels and `weight` are ignored then. Absent: the model's loss is used.
  TensorView gradient = {};
  double weight = 1;  ///< of each label's loss: 1 / labels of the step, so that micro-batches add up to its mean
  bool last = false;  ///< the update comes next, so ranks may reduce the gradients during the backward pass

  int64_t tokens() const;
  /// Message fields; excludes the gradient.
  auto fields() { return std::tie(rows, inputs, weight, last); }
};

}  // namespace plait
