#include "core/passes/shard/sums.h"

namespace plait {

Sums::Sums(const Graph& graph) : graph_(graph), producer_(producers(graph)), within_(graph.nodes.size()) {
  std::vector<int> uses(static_cast<size_t>(graph.value_count()));
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != no_value) ++uses[static_cast<size_t>(id)];
  for (ValueId id : graph.outputs) uses[static_cast<size_t>(id)] += 2;
  for (const Node& node : graph.nodes) {
    if (node.op != "Add") continue;
    for (ValueId id : node.inputs) {
      const int32_t maker = producer_[static_cast<size_t>(id)];
      const auto& dims = graph.value(id).type.dims;
      if (maker >= 0 && graph.nodes[static_cast<size_t>(maker)].op == "Add" && uses[static_cast<size_t>(id)] == 1 &&
          dims && dims == graph.value(node.outputs[0]).type.dims)
        within_[static_cast<size_t>(maker)] = true;
    }
  }
}

int32_t Sums::inner(ValueId id) const {
  const int32_t maker = producer_[static_cast<size_t>(id)];
  return maker >= 0 && within_[static_cast<size_t>(maker)] ? maker : -1;
}

bool Sums::is_sum(size_t node) const {
  const Node& add = graph_.nodes[node];
  return add.op == "Add" && (inner(add.inputs[0]) >= 0 || inner(add.inputs[1]) >= 0);
}

std::vector<ValueId> Sums::summands(size_t sum) const {
  std::vector<ValueId> out;
  for (ValueId id : graph_.nodes[sum].inputs) {
    if (const int32_t add = inner(id); add >= 0) {
      const std::vector<ValueId> more = summands(static_cast<size_t>(add));
      out.insert(out.end(), more.begin(), more.end());
    } else {
      out.push_back(id);
    }
  }
  return out;
}

}  // namespace plait
