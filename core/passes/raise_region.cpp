// Raise, regions: the part of a graph between one value and the single data value that it is computed from.
#include <algorithm>

#include "core/passes/raise.h"

namespace plait {

std::vector<Region> regions_of(const Graph& graph, const std::vector<int32_t>& producer,
                               const std::vector<bool>& data, ValueId output, size_t limit) {
  std::vector<Region> found;
  std::vector<int32_t> inside;  // node indices, in the order they were taken in
  std::vector<ValueId> frontier{output};
  auto maker = [&](ValueId id) { return producer[static_cast<size_t>(id)]; };
  while (inside.size() < limit) {
    // The latest frontier value is expanded first: what lies before it can then still join the others.
    auto last =
        std::max_element(frontier.begin(), frontier.end(), [&](ValueId a, ValueId b) { return maker(a) < maker(b); });
    if (last == frontier.end() || maker(*last) < 0) break;
    const Node& node = graph.nodes[static_cast<size_t>(maker(*last))];
    if (!node.bodies.empty() || node.op.rfind("plait.Paged", 0) == 0 || node.op == "plait.KvWrite") break;
    inside.push_back(maker(*last));
    for (ValueId made : node.outputs)
      frontier.erase(std::remove(frontier.begin(), frontier.end(), made), frontier.end());
    for (ValueId id : node.inputs)
      if (id != no_value && data[static_cast<size_t>(id)] &&
          std::find(frontier.begin(), frontier.end(), id) == frontier.end())
        frontier.push_back(id);
    if (frontier.size() != 1) continue;
    Region region;
    region.output = output;
    region.entry = frontier[0];
    region.nodes = inside;
    std::sort(region.nodes.begin(), region.nodes.end());
    for (int32_t index : region.nodes)
      for (ValueId id : graph.nodes[static_cast<size_t>(index)].inputs)
        if (id != no_value && !data[static_cast<size_t>(id)] && !graph.value(id).constant &&
            std::find(region.side.begin(), region.side.end(), id) == region.side.end())
          region.side.push_back(id);
    found.push_back(std::move(region));
  }
  return found;
}

}  // namespace plait
