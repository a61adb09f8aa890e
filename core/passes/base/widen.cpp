#include "core/passes/base/widen.h"

#include "core/base/constant.h"

namespace plait {
namespace {

bool is_narrower(DType dtype, DType than) { return is_float(dtype) && dtype_bits(dtype) < dtype_bits(than); }

/// Attributes that specify a result's dtype, or are a tensor of it.
void widen_attributes(Node& node, DType to) {
  for (const char* name : {"to", "dtype", "output_dtype"})
    if (node.attributes.has(name) && is_narrower(static_cast<DType>(node.attributes.integer(name)), to))
      node.attributes.set(name, static_cast<int64_t>(to));
  const Attribute* value = node.attributes.find("value");
  const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
  if (tensor && is_narrower(tensor->dtype(), to))
    node.attributes.set("value", materialize({{}, *tensor, {{RecipeStep::Kind::cast, {}, to}}}));
}

}  // namespace

bool widen(Graph& graph, DType to) {
  bool any = false;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    Value& value = graph.value(id);
    if (!is_narrower(value.type.dtype, to)) continue;
    any = true;
    value.type.dtype = to;
    if (!value.constant) continue;
    auto wide = std::make_shared<Constant>(*value.constant);
    add_step(*wide, {RecipeStep::Kind::cast, {}, to});
    value.constant = std::move(wide);
  }
  for (Node& node : graph.nodes) {
    widen_attributes(node, to);
    for (auto& [name, body] : node.bodies) {
      auto copy = std::make_shared<Graph>(*body);  // bodies are shared with the original graph
      any = widen(*copy, to) || any;
      body = std::move(copy);
    }
  }
  return any;
}

}  // namespace plait
