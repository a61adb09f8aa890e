#pragma once
// AttributeProto to Attribute, with the check that the type it claims is the one that is set.
#include <string>

#include "core/base/attributes.h"
#include "importers/onnx/tensor_reader.h"

namespace onnx {
class AttributeProto;
}

namespace plait::onnx_import {

/// Throws Error(bad_model) unless `proto` has a name, a type, and nothing set but the field of that type. A scalar
/// that is not set at all is zero, as serialisers that leave out zeros mean it.
void check_attribute(const onnx::AttributeProto& proto);

bool is_graph(const onnx::AttributeProto& proto);

/// The value of a checked attribute that is no graph. Throws Error(unsupported) for lists of tensors or graphs,
/// sparse tensors and types.
Attribute read_attribute(const onnx::AttributeProto& proto, TensorReader& tensors);

/// The tensor that a Constant node means by `proto` as its attribute `name`: value, value_float, value_floats,
/// value_int or value_ints. Throws Error(unsupported) for strings and sparse tensors.
Tensor read_constant(const std::string& name, const onnx::AttributeProto& proto, TensorReader& tensors);

/// What reading the attribute costs, in units of the importer's work limit: roughly words of memory.
int64_t attribute_cost(const onnx::AttributeProto& proto);

}  // namespace plait::onnx_import
