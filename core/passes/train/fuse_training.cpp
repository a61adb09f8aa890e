// Passes fuse_training and fuse_sums: combine ops of losses and gradients that kernels run faster together. Neither
// changes results.
#include <algorithm>

#include "core/passes/train/train.h"

namespace plait {
namespace {

/// HeadStatistics, the losses computed from it, and HeadBack become HeadLoss, which multiplies by the head's weight
/// once.
class HeadFuser {
 public:
  explicit HeadFuser(Graph& graph) : graph_(graph), producer_(producers(graph)) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (graph_.nodes[i].op == "plait.HeadBack") fuse(graph_.nodes[i]);
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  const Node* maker(ValueId id) const {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }

  void fuse(Node& back) {
    if (is_bias_of_codes(back)) return;
    const ValueId log_sum_exp = back.inputs[3];
    for (Node& loss : graph_.nodes) {
      if (loss.op != "Sub" || loss.inputs[0] != log_sum_exp) continue;
      const Node* statistics = maker(loss.inputs[1]);
      if (!statistics || statistics->op != "plait.HeadStatistics" || statistics->outputs[2] != loss.inputs[1])
        continue;
      if (!std::equal(statistics->inputs.begin(), statistics->inputs.begin() + 3, back.inputs.begin()) ||
          !std::equal(statistics->inputs.begin() + 3, statistics->inputs.end(), back.inputs.begin() + 5,
                      back.inputs.end()))
        continue;
      if (!is_whole(log_sum_exp, *statistics)) continue;
      back.op = "plait.HeadLoss";
      back.inputs.erase(back.inputs.begin() + 3);
      back.outputs.insert(back.outputs.begin(), loss.outputs[0]);
      for (const char* of_chunks : {"chunks", "offset_axes", "whole"}) back.attributes.erase(of_chunks);
      loss.outputs[0] = graph_.add_value("", graph_.value(loss.outputs[0]).type);  // without readers
      return;
    }
  }

  /// Whether a bias is trained next to a quantised weight: its gradient needs all logits of some rows, which HeadLoss
  /// does not keep for quantised weights.
  bool is_bias_of_codes(const Node& back) const {
    const auto& w = graph_.value(back.inputs[1]).type.dims;
    return back.outputs.size() > 2 && back.outputs[2] != no_value && w && w->size() == 3;
  }

  /// Whether no collective is needed between the statistics and their log-sum-exp.
  bool is_whole(ValueId id, const Node& statistics) const {
    const Node* node = maker(id);
    if (!node || node == &statistics) return true;
    static constexpr const char* known[] = {"ReduceMax", "ReduceSum", "Sub", "Mul", "Exp", "Log", "Squeeze", "Add"};
    return std::find(std::begin(known), std::end(known), node->op) != std::end(known) &&
           std::all_of(node->inputs.begin(), node->inputs.end(),
                       [&](ValueId input) { return is_whole(input, statistics); });
  }

  Graph& graph_;
  std::vector<int32_t> producer_;
};

/// Whether the value is a product of many rows with a whole weight, without a bias.
bool is_plain_product(const Graph& graph, const Node& node) {
  const bool is_forward = node.op == "plait.Linear" && node.attributes.integer("many_rows", 0) == 1;
  if (!is_forward && node.op != "plait.LinearBack") return false;
  const auto& dims = graph.value(node.inputs[1]).type.dims;
  return dims && dims->size() == 2 &&
         std::all_of(node.inputs.begin() + 2, node.inputs.end(), [](ValueId id) { return id == no_value; });
}

}  // namespace

/// A sum and the product that only it reads become one node in place of the sum; of two products the later one.
void fuse_sums(Graph& graph, PassContext&) {
  const std::vector<int32_t> producer = producers(graph);
  std::vector<int> uses(static_cast<size_t>(graph.value_count()));
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != no_value) ++uses[static_cast<size_t>(id)];
  for (ValueId id : graph.outputs) ++uses[static_cast<size_t>(id)];
  for (Node& sum : graph.nodes) {
    if (sum.op != "Add") continue;
    auto maker = [&](size_t k) { return producer[static_cast<size_t>(sum.inputs[k])]; };
    const size_t later = maker(0) > maker(1) ? 0 : 1;
    const ValueId product = sum.inputs[later], other = sum.inputs[1 - later];
    if (maker(later) < 0 || uses[static_cast<size_t>(product)] != 1) continue;
    const Node& made = graph.nodes[static_cast<size_t>(maker(later))];
    const Type &type = graph.value(product).type, &of_other = graph.value(other).type;
    if (!is_plain_product(graph, made) || type.dtype != of_other.dtype || type.dims != of_other.dims) continue;
    Attributes attributes;
    attributes.set("back", int64_t{made.op == "plait.LinearBack"});
    attributes.set("round_x", made.attributes.integer("round_x", 0));
    sum.op = "plait.AddLinear";
    sum.inputs = {other, made.inputs[0], made.inputs[1]};
    sum.attributes = std::move(attributes);
  }
  graph.remove_dead();
}

void fuse_training(Graph& graph, PassContext&) { HeadFuser(graph).run(); }

}  // namespace plait
