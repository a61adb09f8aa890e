// Pass recompute: what the backward pass reads of the forward pass is computed once more where it is read, instead of being
// kept from then till now (Chen et al. 2016; "selective" after Korthikanti et al. 2022).
//
// Kept in any case are sums of two activations, which is what the residual stream is, so that no chain of nodes is longer
// than a block; and what ranks have told each other. `selective` keeps besides whatever sums over a dim: products, attention,
// rows of tables. A weight that is put together of its shards is never kept. The same kernels make the same bits, so results do
// not change.
#include <algorithm>
#include <set>

#include "core/mesh/placement.h"
#include "core/passes/compile.h"

namespace plait {
namespace {

class Recomputing {
 public:
  Recomputing(Graph& graph, const OpSet& ops, Recompute how)
      : graph_(graph), ops_(ops), how_(how), producer_(producers(graph)) {
    mark(of_tokens_, graph.inputs);
    std::vector<ValueId> weights;  // of the targets: what depends on them is the backward pass
    for (ValueId id : graph.inputs)
      if (graph.value(id).name == "weights" || graph.value(id).name == "gradients") weights.push_back(id);
    mark(backward_, weights);
  }

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    originals_ = &nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node node = nodes[i];
      if (is_backward(node))
        for (ValueId& id : node.inputs) id = again(id);
      made_.push_back(std::move(node));
    }
    graph_.nodes = std::move(made_);
    graph_.remove_dead();
  }

 private:
  using Marks = std::vector<bool>;  ///< by value

  void mark(Marks& marks, const std::vector<ValueId>& from) {
    marks.resize(static_cast<size_t>(graph_.value_count()));
    for (ValueId id : from) marks[static_cast<size_t>(id)] = true;
    for (const Node& node : graph_.nodes)
      if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return has(marks, id); }))
        for (ValueId id : node.outputs)
          if (id != no_value) marks[static_cast<size_t>(id)] = true;
  }
  static bool has(const Marks& marks, ValueId id) { return id != no_value && marks[static_cast<size_t>(id)]; }
  bool is_backward(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return has(backward_, id); });
  }

  bool is_sum_of_activations(const Node& node) const {
    if (node.op != "Add") return false;
    const auto& dims = graph_.value(node.outputs[0]).type.dims;
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return has(of_tokens_, id) && graph_.value(id).type.dims == dims; });
  }
  bool is_collective(const Node& node) const { return node.attributes.has("axes") && node.attributes.has("parts"); }
  /// Whether the node sums over a dim, or might.
  bool sums(const Node& node) const {
    const std::optional<NodeRule> rule = rule_of(graph_, ops_, node);
    if (!rule) return true;
    const std::vector<FactorUse> all = factors(rule->rule);
    return std::any_of(all.begin(), all.end(), [](const FactorUse& use) { return use.contracted(); });
  }

  bool is_kept(const Node& node) const {
    const bool of_weights =
        std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return has(of_tokens_, id); });
    if (of_weights) return !is_collective(node);
    return is_sum_of_activations(node) || is_collective(node) || (how_ == Recompute::selective && sums(node));
  }

  /// The value as the backward pass reads it: behind the nodes so far.
  ValueId again(ValueId id) {
    if (id == no_value) return id;
    const int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker < 0 || has(backward_, id)) return id;
    if (auto known = copies_.find(id); known != copies_.end()) return known->second;
    const Node& node = (*originals_)[static_cast<size_t>(maker)];
    if (is_kept(node)) return copies_[id] = id;
    Node copy = node;
    for (ValueId& input : copy.inputs) input = again(input);
    for (ValueId& output : copy.outputs) {
      if (output == no_value) continue;
      const ValueId made = graph_.add_value("", graph_.value(output).type);
      copies_[output] = made;
      output = made;
    }
    made_.push_back(std::move(copy));
    return copies_.at(id);
  }

  Graph& graph_;
  const OpSet& ops_;
  const Recompute how_;
  const std::vector<int32_t> producer_;
  Marks of_tokens_, backward_;
  const std::vector<Node>* originals_ = nullptr;
  std::vector<Node> made_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

void recompute(Graph& graph, PassContext& context) {
  const Recompute how = context.training->recompute;
  if (how != Recompute::off) Recomputing(graph, context.options.ops, how).run();
}

}  // namespace plait
