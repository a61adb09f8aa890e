// Pass capture_weights: weights that bodies hold become operands of their nodes, which is where they are trained.
#include "core/passes/train/parameters.h"
#include "core/passes/train/train.h"

namespace plait {
namespace {

bool is_weight(const Value& value) {
  return value.constant && !value.constant->literal && is_float(value.constant->dtype()) &&
         !names_of(*value.constant).empty();
}

/// All bodies of a node take what one of them does.
void capture(Graph& graph, Node& node) {
  if (node.op == "Loop" && !node.attributes.has("carried"))
    node.attributes.set("carried", static_cast<int64_t>(node.inputs.size()) - 2);
  for (auto& [name, body] : node.bodies)
    for (Node& inner : body->nodes)
      if (!inner.bodies.empty()) capture(*body, inner);
  for (auto& [name, body] : node.bodies)
    for (ValueId id = 0, count = body->value_count(); id < count; ++id) {
      if (!is_weight(body->value(id))) continue;
      node.inputs.push_back(graph.add_constant(*body->value(id).constant));
      body->value(id).constant = nullptr;
      for (auto& [of, other] : node.bodies) {
        const Type type = body->value(id).type;
        other->inputs.push_back(other == body ? id : other->add_value({}, type));
      }
    }
}

}  // namespace

void capture_weights(Graph& graph, PassContext&) {
  for (Node& node : graph.nodes)
    if (!node.bodies.empty()) capture(graph, node);
}

}  // namespace plait
