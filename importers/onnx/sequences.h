#pragma once
// Sequences of tensors, which graphs do not have: if the parts of one are known, its readers read these.
#include <string_view>

#include "core/graph/graph.h"

namespace plait::onnx_import {

/// Whether the op makes or reads a sequence and is replaced by `unfold_sequences`.
bool is_sequence_op(std::string_view op);

/// Replaces SplitToSequence, SequenceConstruct, SequenceAt, SequenceLength and ConcatFromSequence by Split, Slice,
/// Gather, Concat and Identity. The nodes must be sorted topologically. Throws Error, naming node, op, domain and
/// opset: unsupported if parts or positions are not constant, or another op reads a sequence; bad_model for a
/// position out of range.
void unfold_sequences(Graph& graph);

}  // namespace plait::onnx_import
