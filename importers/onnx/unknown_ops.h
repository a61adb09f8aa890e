#pragma once
// Ops that Plait does not have: the error, with what would do instead.
#include "core/graph/graph.h"
#include "core/graph/schema.h"

namespace plait::onnx_import {

/// Throws Error(unsupported) for an op that is not in `ops`, with the dtypes of the node's inputs.
void refuse_unknown(const OpSet& ops, const Graph& graph, const Node& node);

}  // namespace plait::onnx_import
