#pragma once
// The layer of each node of a raised decoder, found from the graph's shape: names depend on the exporter.
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// Layers are numbered from 0 in token order. A layer begins at a value that all paths pass, if pages or states are
/// read before the next such value.
struct GraphLayers {
  int count = 0;
  /// By node: its layer; -1: before the first, or shared (angles, masks); count: after the last.
  std::vector<int> of_node;
};
GraphLayers layers_of(const Graph& graph, const OpSet& ops);
/// The same of a decoder without a cache, as it is trained: a layer has attention or a recurrence over packed documents.
/// States are adapters there.
GraphLayers packed_layers_of(const Graph& graph, const OpSet& ops);

}  // namespace plait
