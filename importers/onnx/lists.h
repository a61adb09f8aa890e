#pragma once
// Sequences and optionals of the standard as lists (core/base/packed_list.h), and what each value is.
#include "core/graph/schema.h"

namespace onnx {
class TypeProto;
}

namespace plait::onnx_import {

/// What a declared type is; the tensors within have `tensor_type_of` it. Throws Error(unsupported) for maps, sparse tensors and
/// sequences of sequences.
ValueKind kind_of(const onnx::TypeProto& type);
const onnx::TypeProto& tensor_type_of(const onnx::TypeProto& type);

/// Determines the kind of each value of the sorted graph, writes optionals as lists of at most one, and SequenceMap as a Loop.
/// Throws Error(unsupported) for an op that reads a list but takes tensors only.
void settle_lists(const OpSet& ops, Graph& graph);

}  // namespace plait::onnx_import
