#include "core/graph/branch.h"

#include <algorithm>

namespace plait {
namespace {

/// The nodes of the branch that an If takes, as nodes of `graph`.
std::vector<Node> nodes_of_branch(Graph& graph, const Node& node, const Graph& body) {
  std::vector<ValueId> known(static_cast<size_t>(body.value_count()), no_value);
  std::vector<bool> made(known.size());
  for (size_t i = 0; i < body.inputs.size(); ++i) known[static_cast<size_t>(body.inputs[i])] = node.inputs[i + 1];
  for (const Node& one : body.nodes)
    for (ValueId id : one.outputs)
      if (id != no_value) made[static_cast<size_t>(id)] = true;
  std::vector<std::pair<ValueId, ValueId>> copies;  // what is no node's result, or is twice a result
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto from = static_cast<size_t>(body.outputs[i]);
    if (made[from] && known[from] == no_value) known[from] = node.outputs[i];
    else copies.emplace_back(body.outputs[i], node.outputs[i]);
  }
  const auto moved = [&](ValueId id) {
    if (id == no_value) return id;
    ValueId& to = known[static_cast<size_t>(id)];
    if (to != no_value) return to;
    const Value& value = body.value(id);
    to = value.constant ? graph.add_constant(*value.constant) : graph.add_value({});
    return to;
  };
  std::vector<Node> out;
  for (Node one : body.nodes) {
    for (ValueId& id : one.inputs) id = moved(id);
    for (ValueId& id : one.outputs) id = moved(id);
    out.push_back(std::move(one));
  }
  for (const auto& [from, to] : copies) {
    out.emplace_back();
    out.back().op = "Identity";
    out.back().inputs = {moved(from)};
    out.back().outputs = {to};
  }
  return out;
}

}  // namespace

void take_branch(Graph& graph, ValueId condition, bool value) {
  std::vector<Node> all = std::move(graph.nodes);
  graph.nodes.clear();
  for (Node& node : all) {
    const auto body = std::find_if(node.bodies.begin(), node.bodies.end(), [&](const auto& row) {
      return row.first == (value ? "then_branch" : "else_branch");
    });
    if (node.op != "If" || node.inputs[0] != condition || body == node.bodies.end()) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    const std::shared_ptr<const Graph> taken = body->second;
    for (Node& one : nodes_of_branch(graph, node, *taken)) graph.nodes.push_back(std::move(one));
  }
  std::erase(graph.inputs, condition);
}

void keep_outputs(Graph& graph, std::vector<ValueId> outputs) {
  graph.outputs = std::move(outputs);
  graph.remove_dead();
  std::vector<bool> read(static_cast<size_t>(graph.value_count()));
  const auto reads = [&](ValueId id) {
    if (id != no_value) read[static_cast<size_t>(id)] = true;
  };
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs) reads(id);
  for (ValueId id : graph.outputs) reads(id);
  std::erase_if(graph.inputs, [&](ValueId id) { return !read[static_cast<size_t>(id)]; });
}

}  // namespace plait
