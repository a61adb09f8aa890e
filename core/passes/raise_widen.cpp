// Raise, widening: a file that computes in f16 or bf16 is computed in f32, as files say that keep half precision for
// storage alone. Kernels are made for that, and a result is at most more precise than the file's.
#include "core/passes/compile.h"
#include "core/passes/raise.h"

namespace plait {
namespace {

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

const RecipeStep to_f32{RecipeStep::Kind::cast, {}, DType::f32};

/// Attributes that name the dtype of a result, or are a tensor of it.
void widen_attributes(Node& node) {
  for (const char* name : {"to", "dtype", "output_dtype"})
    if (node.attributes.has(name) && is_half(static_cast<DType>(node.attributes.integer(name))))
      node.attributes.set(name, static_cast<int64_t>(DType::f32));
  const Attribute* value = node.attributes.find("value");
  const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
  if (tensor && is_half(tensor->dtype())) node.attributes.set("value", materialize({{}, *tensor, {to_f32}}));
}

}  // namespace

bool widen(Graph& graph) {
  bool any = false;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    Value& value = graph.value(id);
    if (!is_half(value.type.dtype)) continue;
    any = true;
    value.type.dtype = DType::f32;
    if (!value.constant) continue;
    auto wide = std::make_shared<Constant>(*value.constant);
    add_step(*wide, to_f32);
    value.constant = std::move(wide);
  }
  for (Node& node : graph.nodes) {
    widen_attributes(node);
    for (auto& [name, body] : node.bodies) {
      auto copy = std::make_shared<Graph>(*body);  // bodies are shared with the graph as the file says it
      any = widen(*copy) || any;
      body = std::move(copy);
    }
  }
  return any;
}

}  // namespace plait
