// Pass in_f32: ops of f16 and bf16 that have fast kernels only in f32 compute in f32, on operands that are widened, and their results
// are rounded: what kernels of 16 bits do, too, but for the order of sums.
#include <map>

#include "core/passes/plain/plain.h"
#include "core/passes/raise/raise.h"

namespace plait {
namespace {

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

class InF32 {
 public:
  InF32(Graph& graph, const KernelTable& kernels) : graph_(graph), kernels_(kernels) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (node.bodies.empty() && gains(node)) widen(node);
      else graph_.nodes.push_back(std::move(node));
    }
    graph_.remove_dead();
  }

 private:
  OperandInfo info(ValueId id, bool wide) const {
    if (id == no_value) return {};
    const Value& value = graph_.value(id);
    const DType dtype = wide && is_half(value.type.dtype) ? DType::f32 : value.type.dtype;
    return {dtype, value.type.dims ? static_cast<int>(value.type.dims->size()) : -1, value.constant != nullptr};
  }
  const Kernel* kernel(const Node& node, bool wide) const {
    std::vector<OperandInfo> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(info(id, wide));
    for (ValueId id : node.outputs) outputs.push_back(info(id, wide));
    return kernels_.find({node.op, node.attributes, inputs, outputs});
  }
  bool gains(const Node& node) const {
    if (node.op == "Cast" || node.op == "CastLike") return false;
    auto half = [&](ValueId id) { return id != no_value && is_half(graph_.value(id).type.dtype); };
    if (std::none_of(node.inputs.begin(), node.inputs.end(), half)) return false;
    const Kernel *now = kernel(node, false), *then = kernel(node, true);
    return now && then && now->isa == "reference" && (then->isa != "reference" || is_spelled(node.op));
  }

  void cast(ValueId from, ValueId to, DType dtype, const Node& origin) {
    Node& node = graph_.nodes.emplace_back();
    node.op = "Cast";
    node.inputs = {from};
    node.outputs = {to};
    node.attributes.set("to", static_cast<int64_t>(dtype));
    node.name = origin.name;
  }
  ValueId widened(ValueId id, const Node& origin) {
    const auto [found, added] = wide_.try_emplace(id, no_value);
    if (!added) return found->second;
    if (const auto& constant = graph_.value(id).constant) {
      Constant made = *constant;
      add_step(made, {RecipeStep::Kind::cast, {}, DType::f32});
      return found->second = graph_.add_constant(std::move(made));
    }
    found->second = graph_.add_value("", {DType::f32, graph_.value(id).type.dims});
    cast(id, found->second, DType::f32, origin);
    return found->second;
  }
  void widen(Node& node) {
    for (ValueId& id : node.inputs)
      if (id != no_value && is_half(graph_.value(id).type.dtype)) id = widened(id, node);
    std::vector<std::pair<ValueId, ValueId>> results;  // in f32, and as the file has them
    for (ValueId& id : node.outputs) {
      if (id == no_value || !is_half(graph_.value(id).type.dtype)) continue;
      const ValueId made = graph_.add_value("", {DType::f32, graph_.value(id).type.dims});
      results.emplace_back(made, id);
      id = made;
    }
    graph_.nodes.push_back(node);
    for (const auto& [made, id] : results) cast(made, id, graph_.value(id).type.dtype, node);
  }

  Graph& graph_;
  const KernelTable& kernels_;
  std::map<ValueId, ValueId> wide_;
};

}  // namespace

void in_f32(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) InF32(graph, context.options.kernels).run();
}

}  // namespace plait
