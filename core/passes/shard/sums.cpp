#include "core/passes/shard/sums.h"

#include <algorithm>

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

std::map<ValueId, ValueId> accumulators(const Graph& graph, const OpSet& ops, const NodeRules& rules) {
  const std::vector<int32_t> producer = producers(graph);
  const auto is_sum = [&](ValueId id) {
    const int32_t maker = producer[static_cast<size_t>(id)];
    return maker >= 0 && is_state(graph.nodes[static_cast<size_t>(maker)]) &&
           graph.nodes[static_cast<size_t>(maker)].attributes.integer("sum", 0);
  };
  std::map<ValueId, ValueId> out;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!rules[i] || node.outputs.size() != 1) continue;
    const std::vector<RuleTensor>& operands = rules[i]->rule.operands;
    if (std::any_of(operands.begin(), operands.end(),
                    [](const RuleTensor& one) { return one.linear != Linearity::together; }))
      continue;
    const OpSchema* schema = ops.find(node.op);
    const bool adds = schema && schema->updates && is_sum(node.inputs[0]);
    const auto outer = out.find(node.outputs[0]);
    if (!adds && outer == out.end()) continue;
    const ValueId state = adds ? node.inputs[0] : outer->second;
    for (size_t k = adds ? 1 : 0; k < node.inputs.size(); ++k)
      if (graph.value(node.inputs[k]).type.dims == graph.value(node.outputs[0]).type.dims)
        out.emplace(node.inputs[k], state);
  }
  return out;
}

}  // namespace plait
