// Pass recompute: recomputes activations where the backward pass reads them, instead of keeping them (Chen et al.
// 2016; "selective" after Korthikanti et al. 2022).
//
// Always kept are sums of two activations, i.e. the residual stream, so that recomputed chains are at most a block
// long, and results of collectives but gathers, of which a rank keeps its own part and gathers again (as Korthikanti et
// al. do with tokens that are sharded). `selective` also keeps results of ops that sum over a dim: products, attention,
// rows of tables; of the residual stream it keeps every second sum if the next is computed from it and from kept
// values. Weights gathered from shards or merged with an adapter are never kept. The same kernels give the same bits,
// so results do not change.
//
// `rounded` is `selective`, except for products that round their operands to bf16 (attribute round_x), which they
// also do in the backward pass. Their results are kept as bf16, in half the memory, so the backward pass reads them
// rounded, which is no more than a product's own rounding. These gradients differ from the others in the last bits of
// bf16.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "core/graph/gradient.h"
#include "core/mesh/placement.h"
#include "core/passes/train/train.h"

namespace plait {
namespace {

class Recomputing {
 public:
  Recomputing(Graph& graph, const OpSet& ops, Recompute how)
      : graph_(graph), ops_(ops), how_(how), producer_(producers(graph)), originals_(graph.nodes) {
    mark(of_tokens_, graph.inputs);
    backward_ = backward_values(graph);
  }

  void run() {
    find_skipped();
    std::vector<std::vector<Node>> places(originals_.size());  // replacements of each node
    for (size_t i = 0; i < originals_.size(); ++i) {
      Node node = originals_[i];
      if (is_backward(node))
        for (ValueId& id : node.inputs) id = again(id);
      made_.push_back(std::move(node));
      places[i] = std::exchange(made_, {});
    }
    graph_.nodes.clear();
    for (size_t i = 0; i < places.size(); ++i) {
      std::move(places[i].begin(), places[i].end(), std::back_inserter(graph_.nodes));
      if (auto known = roundings_.find(static_cast<int32_t>(i)); known != roundings_.end())
        graph_.nodes.push_back(std::move(known->second));
    }
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
  static bool is_collective(const Node& node) { return collective_kind(node.op).has_value(); }
  /// Whether the node sums over a dim of an operand that may have a gradient.
  bool sums(const Node& node) const {
    const std::optional<NodeRule> rule = rule_of(graph_, ops_, node);
    if (!rule) return true;
    DimsRule moving = rule->rule;  // neither tables of angles, nor sizes
    const OpSchema& schema = *ops_.find(node.op);
    for (size_t k = 0; k < moving.operands.size(); ++k)
      if (const ValueId id = node.inputs[k];
          id == no_value || !is_float(graph_.value(id).type.dtype) || !fixed_operand(schema, k).empty())
        moving.operands[k] = {};
    const std::vector<FactorUse> all = factors(moving);
    return std::any_of(all.begin(), all.end(), [](const FactorUse& use) { return use.contracted(); });
  }

  /// Whether a value made only of weights has more elements than its trained weights: an adapter's product, or the
  /// sum with it.
  bool is_unfolded(const Node& node) const {
    std::set<ValueId> states;
    add_states(node, states);
    Dim trained = 0;
    for (ValueId id : states) trained = trained + elements(id);
    const Dim made = elements(node.outputs[0]);
    return !states.empty() && made.is_constant() && trained.is_constant() && made.constant() > trained.constant();
  }
  void add_states(const Node& node, std::set<ValueId>& out) const {
    if (is_state(node)) out.insert(node.outputs[0]);
    else
      for (ValueId id : node.inputs)
        if (const Node* made = maker(id)) add_states(*made, out);
  }
  Dim elements(ValueId id) const {
    Dim out = 1;
    for (const Dim& dim : *graph_.value(id).type.dims) out = out * dim;
    return out;
  }

  const Node* maker(ValueId id) const {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &originals_[static_cast<size_t>(at)];
  }
  /// Whether the value is kept rounded: the result of a product of rounded operands, or a sum of such: of an adapter
  /// and its Linear, or of partial sums.
  bool is_rounded_product(ValueId id) const {
    const Node* node = maker(id);
    if (how_ != Recompute::rounded || !node || node->outputs[0] != id || graph_.value(id).type.dtype != DType::f32)
      return false;
    if (node->op == "plait.Linear" || node->op == "plait.PackedAttention")
      return node->attributes.integer("round_x", 0) == 1;
    if (node->op != "Add" && !is_collective(*node)) return false;
    return std::all_of(node->inputs.begin(), node->inputs.end(),
                       [&](ValueId input) { return is_rounded_product(input); });
  }

  bool is_kept(const Node& node) const {
    const bool of_weights =
        std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return has(of_tokens_, id); });
    if (of_weights) return !is_collective(node) && !is_unfolded(node);
    if (is_sum_of_activations(node)) return !has(skipped_, node.outputs[0]);
    if (collective_kind(node.op) == CollectiveKind::all_gather) return false;
    return is_collective(node) || node.op == "plait.Cross" || (how_ != Recompute::full && sums(node));
  }

  /// Finds the second of two consecutive sums of the residual stream, if the first has other readers, and the addend
  /// needs no memory of its own, or less.
  void find_skipped() {
    skipped_.resize(static_cast<size_t>(graph_.value_count()));
    if (how_ == Recompute::full) return;
    const auto readers = consumers(graph_);
    auto is_there = [&](ValueId id) {
      const Node* node = maker(id);
      return node && is_sum_of_activations(*node) && is_kept(*node) && !is_rounded_product(id) &&
             readers[static_cast<size_t>(id)].size() > 1;
    };
    auto takes_less = [&](ValueId id) {
      const Node* node = maker(id);
      return node && (is_rounded_product(id) || !is_kept(*node));
    };
    for (const Node& node : originals_) {
      if (!is_sum_of_activations(node) || is_backward(node) || is_rounded_product(node.outputs[0])) continue;
      const ValueId a = node.inputs[0], b = node.inputs[1];
      skipped_[static_cast<size_t>(node.outputs[0])] =
          (is_there(a) && takes_less(b)) || (is_there(b) && takes_less(a));
    }
  }

  /// The kept form of the value, for nodes added from here on.
  ValueId kept(ValueId id) {
    if (!is_rounded_product(id)) return id;
    auto cast = [&](ValueId from, DType to) {
      const ValueId out = graph_.add_value("", {to, graph_.value(from).type.dims});
      Node node{.op = "Cast", .inputs = {from}, .outputs = {out}};
      node.attributes.set("to", static_cast<int64_t>(to));
      return node;
    };
    Node rounding = cast(id, DType::bf16);
    made_.push_back(cast(rounding.outputs[0], DType::f32));
    made_.back().recomputed = true;
    roundings_.emplace(producer_[static_cast<size_t>(id)], std::move(rounding));
    return made_.back().outputs[0];
  }

  /// The value for the backward pass, recomputed after the nodes so far.
  ValueId again(ValueId id) {
    const Node* node = maker(id);
    if (!node || has(backward_, id)) return id;
    if (auto known = copies_.find(id); known != copies_.end()) return known->second;
    if (is_kept(*node)) return copies_[id] = kept(id);
    Node copy = *node;
    copy.recomputed = true;
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
  const std::vector<Node> originals_;
  Marks of_tokens_, backward_;
  Marks skipped_;  ///< sums of two activations that are not kept
  std::vector<Node> made_;
  std::map<ValueId, ValueId> copies_;
  std::map<int32_t, Node> roundings_;  ///< by the node after which they are inserted
};

}  // namespace

std::vector<bool> backward_values(const Graph& graph) {
  std::vector<bool> out(static_cast<size_t>(graph.value_count()));
  const auto is_weight = [&](ValueId id) { return graph.value(id).name == loss_weight_input; };
  const bool own_loss = std::any_of(graph.inputs.begin(), graph.inputs.end(), is_weight);
  for (ValueId id : graph.inputs)  // otherwise those of the labels
    out[static_cast<size_t>(id)] =
        own_loss ? is_weight(id) : graph.value(id).name == "weights" || graph.value(id).name == "gradients";
  for (const Node& node : graph.nodes)
    if (std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](ValueId id) { return id != no_value && out[static_cast<size_t>(id)]; }))
      for (ValueId id : node.outputs)
        if (id != no_value) out[static_cast<size_t>(id)] = true;
  return out;
}

void recompute(Graph& graph, PassContext& context) {
  const Recompute how = context.training->recompute;
  if (how != Recompute::off) Recomputing(graph, context.options.ops, how).run();
}

}  // namespace plait
