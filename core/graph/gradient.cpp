#include "core/graph/gradient.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
GradientContext::GradientContext(const OpSet& ops, Graph& graph, Node node, std::vector<bool> wanted,
                                 std::vector<ValueId> gradients, Knowledge& knowledge)
    : GraphBuilder(ops, graph, knowledge, node.name, node.stage),
      node_(std::move(node)),
      wanted_(std::move(wanted)),
      gradients_(std::move(gradients)) {}

void GradientContext::give(size_t k, ValueId gradient) {
  if (!wants(k) || gradient == no_value) return;
  const Type value = type(input(k)), own = type(gradient);
  PLAIT_ASSERT(value.dtype == own.dtype && own.dims && value.dims && own.dims->size() == value.dims->size());
  given_.emplace_back(k, gradient);
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

/// The backward walk: per value the gradient found so far.
class Walk {
 public:
  Walk(const OpSet& ops, Graph& graph) : ops_(ops), graph_(graph), nodes_(graph.nodes.size()) {
    sums_.resize(static_cast<size_t>(graph.value_count()), no_value);
  }

  std::vector<ValueId> run(std::span<const GradientSeed> seeds, std::span<const ValueId> wanted) {
    for (const GradientSeed& seed : seeds) add(seed.value, seed.gradient);
    mark(wanted);
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
    Node& node = graph_.add_node("Add", {sum, gradient});
    infer_node(ops_, graph_, node, knowledge_);
    sum = node.outputs[0];
  }

  /// Marks values that depend smoothly on a wanted value.
  void mark(std::span<const ValueId> wanted) {
    depends_.resize(sums_.size());
    for (ValueId id : wanted) depends_[static_cast<size_t>(id)] = true;
    for (size_t i = 0; i < nodes_; ++i) {
      const Node& node = graph_.nodes[i];
      if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return depends(id); })) continue;
      for (ValueId id : node.outputs)
        if (id != no_value && is_float(graph_.value(id).type.dtype)) depends_[static_cast<size_t>(id)] = true;
    }
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
    GradientContext context(ops_, graph_, node, std::move(wanted), std::move(gradients), knowledge_);
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

std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted) {
  return Walk(ops, graph).run(seeds, wanted);
}

}  // namespace plait
