#pragma once
// Sequences of tensors, which no graph holds: where the parts of one are known, its readers read these.
#include <string_view>

#include "core/graph/graph.h"

namespace plait::onnx_import {

/// Whether the op makes or reads a sequence and `unfold_sequences` takes its place.
bool is_sequence_op(std::string_view op);

/// Replaces SplitToSequence, SequenceConstruct, SequenceAt, SequenceLength and ConcatFromSequence by Split, Slice, Gather, Concat
/// and Identity. The nodes must be in an order in which they can run. Throws Error, naming node, op, domain and opset: unsupported
/// where parts or positions are not constant, or where anything else reads a sequence; bad_model for a position that is not there.
void unfold_sequences(Graph& graph);

}  // namespace plait::onnx_import
