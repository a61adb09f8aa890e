#pragma once
// The inputs of a rank's programs, of one micro-batch.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/exec/program.h"
#include "core/train/rank_batch.h"

namespace plait {

/// `view` as a tensor of `dtype`.
Tensor copy_as(const TensorView& view, DType dtype);

/// Refers to the batch.
class BatchInputs {
 public:
  /// `prefix`: tokens of the trained prefix.
  BatchInputs(const RankBatch& batch, int64_t prefix);

  /// Host arrays in the program's order; floats of a decoder in the dtype that the program computes in. Valid until the next
  /// call.
  std::vector<TensorView> of(const Program& program);

 private:
  void add(std::string_view name, Tensor tensor);

  const NamedInputs& given_;  ///< of a graph with its own loss
  const double weight_;       ///< of that loss
  std::map<std::string_view, Tensor> rows_;
  std::map<std::string_view, TensorView> views_;
  TensorView ids_;
  std::vector<Tensor> converted_;
};

}  // namespace plait
