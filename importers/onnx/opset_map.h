#pragma once
// Converts older forms of ops to the newest (opset 23/24), so that one schema row, one kernel and one pattern per op
// suffice.
#include <cstdint>

#include "core/graph/graph.h"

namespace plait::onnx_import {

/// Rewrites `node`, of opset version `opset` of its domain, in place into the newest form. Additional nodes are
/// appended to `graph.nodes`, constants to its values; `node` itself is not in the graph yet, but its operands are.
/// The outputs keep their ids. Throws Error(unsupported) for a form without a newest equivalent, Error(bad_model) if
/// a required attribute is missing or of another kind.
void to_newest(Graph& graph, Node& node, int64_t opset);

}  // namespace plait::onnx_import
