// Joins the last micro-batch of a step and the norm into one graph: if ranks reduce gradients once a step, each is
// reduced as soon as it is complete.
#include "core/passes/train/parameters.h"

namespace plait {

Graph settle_graph(const OpSet& ops, Graph graph, const Graph& norm) {
  std::map<std::string, ValueId> left;  // by key: the State's value after its last write
  std::map<ValueId, std::string> keys;
  auto follow = [&](const Node& node) {
    if (is_state(node)) keys.emplace(node.outputs[0], node.attributes.string("key", ""));
    const OpSchema* schema = ops.find(node.op);
    for (size_t k = 0; schema && k < static_cast<size_t>(schema->updates) && k < node.outputs.size(); ++k)
      if (auto key = keys.find(node.inputs[k]); key != keys.end() && node.outputs[k] != no_value)
        keys.emplace(node.outputs[k], key->second);
    for (ValueId id : node.outputs)
      if (auto key = keys.find(id); key != keys.end()) left[key->second] = id;
  };
  for (const Node& node : graph.nodes) follow(node);
  std::map<ValueId, ValueId> values{{no_value, no_value}};
  auto value = [&](ValueId id) {
    auto [known, fresh] = values.try_emplace(id, no_value);
    if (!fresh) return known->second;
    const Value& from = norm.value(id);
    known->second = graph.add_value("", from.type);
    graph.value(known->second).constant = from.constant;
    return known->second;
  };
  for (const Node& from : norm.nodes) {
    if (is_state(from))
      if (auto known = left.find(from.attributes.string("key", "")); known != left.end()) {
        values[from.outputs[0]] = known->second;
        continue;
      }
    Node node = from;
    for (ValueId& id : node.inputs) id = value(id);
    for (ValueId& id : node.outputs) id = value(id);
    graph.nodes.push_back(std::move(node));
  }
  std::vector<ValueId> outputs;
  for (ValueId id : norm.outputs) outputs.push_back(value(id));
  graph.outputs.insert(graph.outputs.begin() + 1, outputs.begin(), outputs.end());
  return graph;
}

}  // namespace plait
