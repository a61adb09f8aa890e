#include "core/graph/gradient.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
GradientContext::GradientContext(const OpSet& ops, Graph& graph, size_t at, std::vector<bool> wanted,
                                 std::vector<ValueId> gradients, Knowledge& knowledge)
    : GraphBuilder(ops, graph, knowledge, graph.nodes[at].name, graph.nodes[at].stage),
      at_(at),
      node_(graph.nodes[at]),
      wanted_(std::move(wanted)),
      gradients_(std::move(gradients)) {}

void GradientContext::give(size_t k, ValueId gradient) {
  if (!wants(k) || gradient == no_value) return;
  const Type value = type(input(k)), own = type(gradient);
  PLAIT_ASSERT(value.dtype == own.dtype);
  PLAIT_ASSERT(!value.dims || (own.dims && own.dims->size() == value.dims->size()));
  given_.emplace_back(k, gradient);
}

void GradientContext::give_as_is(size_t k, ValueId gradient) {
  if (!wants(k) || gradient == no_value) return;
  const std::optional<Dims> value = type(input(k)).dims, own = type(gradient).dims;
  if (!is_list(input(k)) && value && own != value) gradient = add("Reshape", {gradient, sizes(*value)});
  if (is_list(input(k))) graph_.value(gradient).kind = graph_.value(input(k)).kind;
  give(k, gradient);
}

void GradientContext::replace(Node node) {
  std::vector<Type> types;
  for (const ValueId id : node_.outputs) types.push_back(id == no_value ? Type{} : type(id));
  graph_.nodes[at_] = std::move(node);
  infer_node(ops_, graph_, graph_.nodes[at_], knowledge_);
  for (size_t k = 0; k < types.size(); ++k)
    if (node_.outputs[k] != no_value) graph_.value(node_.outputs[k]).type = std::move(types[k]);
}

Attributes GradientContext::kept(std::initializer_list<std::string_view> names) const {
  Attributes out;
  for (std::string_view name : names)
    if (const Attribute* value = attributes().find(name)) out.set(std::string(name), *value);
  return out;
}

void GradientContext::fail(std::string message, std::string hint) {
  throw Error(Code::unsupported, std::move(message), std::move(hint));
}

void no_gradient(GradientContext&) {}

namespace {

/// Marks which values are lists of tensors, by the ops that make them, in bodies too (in copies of these).
void mark_lists(const OpSet& ops, Graph& graph) {
  auto mark = [](Graph& in, ValueId id, ValueKind kind) {
    if (id != no_value && in.value(id).kind == ValueKind::tensor) in.value(id).kind = kind;
  };
  for (Node& node : graph.nodes) {
    auto kind = [&](size_t k) {
      return k < node.inputs.size() && node.inputs[k] != no_value ? graph.value(node.inputs[k]).kind
                                                                  : ValueKind::tensor;
    };
    const OpSchema* row = ops.find(node.op);
    if (row && row->makes_sequence) mark(graph, node.outputs[0], ValueKind::sequence);
    if (node.op == "Identity") mark(graph, node.outputs[0], kind(0));
    // A loop's body takes what the node takes, and returns the condition first; a branch does not take the condition.
    const size_t first_in = node.op == "If" ? 1 : 0, first_out = node.op == "Loop" ? 1 : 0;
    for (auto& [name, body] : node.bodies) {
      body = std::make_shared<Graph>(*body);  // several graphs may share it
      for (size_t k = 0; k < body->inputs.size(); ++k) mark(*body, body->inputs[k], kind(k + first_in));
      mark_lists(ops, *body);
      for (size_t k = 0; k < node.outputs.size() && k + first_out < body->outputs.size(); ++k)
        mark(graph, node.outputs[k], body->value(body->outputs[k + first_out]).kind);
    }
  }
}

/// The backward walk: per value the gradient found so far.
class Walk {
 public:
  Walk(const OpSet& ops, Graph& graph) : ops_(ops), graph_(graph), nodes_(graph.nodes.size()) {
    mark_lists(ops, graph);
    sums_.resize(static_cast<size_t>(graph.value_count()), no_value);
  }

  std::vector<ValueId> run(std::span<const GradientSeed> seeds, std::span<const ValueId> wanted) {
    for (const GradientSeed& seed : seeds) add(seed.value, seed.gradient);
    depends_ = depending(graph_, wanted);
    for (size_t i = nodes_; i-- > 0;) visit(i);
    std::vector<ValueId> out;
    for (ValueId id : wanted) out.push_back(sums_[static_cast<size_t>(id)]);
    return out;
  }

 private:
  void add(ValueId value, ValueId gradient) {
    ValueId& sum = sums_[static_cast<size_t>(value)];
    if (sum == no_value) {
      sum = gradient;
      return;
    }
    sum = GraphBuilder(ops_, graph_, knowledge_).plus(sum, gradient);
  }

  bool depends(ValueId id) const { return id != no_value && depends_[static_cast<size_t>(id)]; }

  void visit(size_t index) {
    const Node node = graph_.nodes[index];
    std::vector<ValueId> gradients;
    for (ValueId id : node.outputs) gradients.push_back(id == no_value ? no_value : sums_[static_cast<size_t>(id)]);
    std::vector<bool> wanted;
    for (ValueId id : node.inputs) wanted.push_back(depends(id));
    auto any = [](const auto& list, auto nothing) {
      return std::any_of(list.begin(), list.end(), [&](auto one) { return one != nothing; });
    };
    if (!any(gradients, no_value) || !any(wanted, false)) return;
    const OpSchema* schema = ops_.find(node.op);
    if (!schema || !schema->gradient)
      throw Error(Code::unsupported,
                  cat(describe(graph_, node), " has no gradient, and is on the path from the loss to trained weights"),
                  "`plait ops` lists the ops with gradients; train only weights or adapters after this node");
    for (size_t k = 0; k < wanted.size(); ++k)
      if (const std::string_view name = fixed_operand(*schema, k); wanted[k] && !name.empty())
        throw Error(Code::unsupported, cat(describe(graph_, node), ": its operand ", name, " has no gradient"),
                    "exclude the weights before it");
    GradientContext context(ops_, graph_, index, std::move(wanted), std::move(gradients), knowledge_);
    try {
      schema->gradient(context);
    } catch (const Error& error) {
      throw error.at(cat("the gradient of ", describe(node)));
    }
    for (const auto& [k, gradient] : context.given()) add(node.inputs[k], gradient);
  }

  const OpSet& ops_;
  Graph& graph_;
  const size_t nodes_;  ///< the nodes before the walk
  Knowledge knowledge_;
  std::vector<ValueId> sums_;
  std::vector<bool> depends_;
};

}  // namespace

std::vector<bool> depending(const Graph& graph, std::span<const ValueId> wanted) {
  std::vector<bool> out(static_cast<size_t>(graph.value_count()));
  for (ValueId id : wanted) out[static_cast<size_t>(id)] = true;
  for (const Node& node : graph.nodes) {
    if (std::none_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId id) { return id != no_value && out[static_cast<size_t>(id)]; }))
      continue;
    for (ValueId id : node.outputs)
      if (id != no_value && is_float(graph.value(id).type.dtype)) out[static_cast<size_t>(id)] = true;
  }
  return out;
}

std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted) {
  return Walk(ops, graph).run(seeds, wanted);
}

}  // namespace plait
