#pragma once
// Converts AttributeProto to Attribute, and checks that the field of its type is set.
#include <string>

#include "core/base/attributes.h"
#include "importers/onnx/tensor_reader.h"

namespace onnx {
class AttributeProto;
}

namespace plait::onnx_import {

/// Throws Error(bad_model) unless `proto` has a name, a type, and only the field of that type. An unset scalar is
/// zero, since serialisers omit zeros.
void check_attribute(const onnx::AttributeProto& proto);

bool is_graph(const onnx::AttributeProto& proto);

/// The value of a checked attribute other than a graph; of a type its element type. Throws Error(unsupported) for lists of
/// tensors or graphs, and sparse tensors.
Attribute read_attribute(const onnx::AttributeProto& proto, TensorReader& tensors);

/// The tensor of a Constant node's attribute `name`: value, value_float, value_floats, value_int or value_ints.
/// Throws Error(unsupported) for strings and sparse tensors.
Tensor read_constant(const std::string& name, const onnx::AttributeProto& proto, TensorReader& tensors);

/// The cost of reading the attribute, in units of the importer's work limit: roughly words of memory.
int64_t attribute_cost(const onnx::AttributeProto& proto);

}  // namespace plait::onnx_import
