#pragma once
// What one forward and backward pass of all data ranks takes.
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/tensor.h"
#include "core/train/data/packing.h"

namespace plait {

/// Tensors by the names of a graph's inputs.
using NamedInputs = std::map<std::string, TensorView, std::less<>>;

/// Rows of a recognised decoder, or inputs of a graph with a loss of its own (TrainingOptions::loss).
struct MicroBatch {
  std::vector<PackedRow> rows;  ///< one for each data rank; may be empty rows
  NamedInputs inputs;           ///< of the whole batch, which data ranks share
  /// With TrainingOptions::host_loss: the gradients of the host's loss by the logits of all tokens of the rows in order, f32
  /// [tokens, v]; labels and `weight` do not count then. Absent: the loss is the model's.
  TensorView gradient = {};
  double weight = 1;  ///< of each target's loss: 1 / targets of the step, so that micro-batches add up to its mean
  bool last = false;  ///< the update comes next, so ranks may reduce the gradients during the backward pass

  int64_t tokens() const;
  /// As a message. The gradient is not part of it.
  auto fields() { return std::tie(rows, inputs, weight, last); }
};

}  // namespace plait
