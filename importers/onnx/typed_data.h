#pragma once
// The typed data fields of a TensorProto: float_data, int32_data, int64_data, double_data, uint64_data.
#include "core/base/tensor.h"

namespace onnx {
class TensorProto;
}

namespace plait::onnx_import {

/// Makes the tensor from the one typed field that holds its elements (onnx.proto says which field serves which dtype;
/// narrow types live bit-wise in int32_data, those of 4 and 2 bits packed to bytes). Throws Error(bad_model) when it
/// is another field, when its length is not what the shape asks for, or when a number does not fit the dtype.
/// `used` names the one data field that is set, "" when none is.
Tensor typed_tensor(const onnx::TensorProto& proto, DType dtype, const Shape& shape, std::string_view used);

}  // namespace plait::onnx_import
