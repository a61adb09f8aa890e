#pragma once
// Converts TensorProto to Tensor: dtypes, storage forms, and external data.
#include <memory>
#include <string>
#include <unordered_map>

#include "core/base/tensor.h"
#include "importers/onnx/external_data.h"

namespace onnx {
class TensorProto;
}

namespace plait::onnx_import {

/// The dtype of a file's number. Throws Error(bad_model) for an undefined number, and for 0 ("undefined").
DType dtype_of(int64_t data_type);

/// A file's sizes as a Shape. Throws Error(bad_model) if one is negative or their product overflows, and
/// Error(unsupported) above Shape::max_rank.
Shape shape_of(std::span<const int64_t> sizes, DType dtype);

/// One per import. Each file is mapped once, each TensorProto converted once.
class TensorReader {
 public:
  /// `file` contains the ranges of slim_model.
  TensorReader(std::shared_ptr<const Blob> file, const ExternalResolver& resolver)
      : file_(std::move(file)), resolver_(resolver) {}

  /// Shares the bytes of the file, except for typed data. `proto` must outlive the reader. Throws Error(bad_model)
  /// unless there is exactly one data field with exactly as many elements as the sizes.
  Tensor read(const onnx::TensorProto& proto);
  /// The same without caching, for a temporary message.
  Tensor convert(const onnx::TensorProto& proto);

 private:
  Tensor external(const onnx::TensorProto& proto, DType dtype, const Shape& shape);
  const std::shared_ptr<const Blob>& open(const std::string& location);

  std::shared_ptr<const Blob> file_;
  const ExternalResolver& resolver_;
  std::unordered_map<std::string, std::shared_ptr<const Blob>> opened_;
  std::unordered_map<const onnx::TensorProto*, Tensor> done_;
};

}  // namespace plait::onnx_import
