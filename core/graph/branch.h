#pragma once
// Files of several graphs in one, as exporters write them.
#include "core/graph/graph.h"

namespace plait {

/// `condition` is a bool input that is known to be `value`: each If of the main graph with that condition becomes its branch's nodes.
/// The input is dropped.
void take_branch(Graph& graph, ValueId condition, bool value);

/// Leaves the graph that computes these outputs, with the inputs that it reads.
void keep_outputs(Graph& graph, std::vector<ValueId> outputs);

}  // namespace plait
