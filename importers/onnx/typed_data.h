#pragma once
// The typed data fields of a TensorProto: float_data, int32_data, int64_data, double_data, uint64_data.
#include "core/base/tensor.h"

namespace onnx {
class TensorProto;
}

namespace plait::onnx_import {

/// Makes the tensor from the typed field of its dtype (onnx.proto specifies which; narrow types are bit patterns in
/// int32_data, those of 4 and 2 bits packed to bytes). Throws Error(bad_model) if another field is set, if its length
/// does not match the shape, or if a number does not fit the dtype. `used` names the only data field set, "" if there
/// there is none.
Tensor typed_tensor(const onnx::TensorProto& proto, DType dtype, const Shape& shape, std::string_view used);

}  // namespace plait::onnx_import
