#pragma once
// Which layer of a raised decoder a node belongs to, found in the shape of the graph: names are the exporters' own.
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// Layers are numbered from 0 in the order in which tokens pass them. A layer begins where all that tokens become passes one
/// value, and pages or states are read before the next such value.
struct GraphLayers {
  int count = 0;
  /// By node: its layer; -1: before the first, or for several of them (angles, masks); count: behind the last.
  std::vector<int> of_node;
};
GraphLayers layers_of(const Graph& graph, const OpSet& ops);

}  // namespace plait
