// Pass fuse_training: what kernels do better in one go when losses and gradients are made together. None changes what is
// computed.
#include <algorithm>

#include "core/passes/compile.h"

namespace plait {
namespace {

/// HeadStatistics, the losses that come of it, and HeadBack become HeadLoss, which multiplies by the head's weight once.
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
    const ValueId log_sum_exp = back.inputs[3];
    for (Node& loss : graph_.nodes) {
      if (loss.op != "Sub" || loss.inputs[0] != log_sum_exp) continue;
      const Node* statistics = maker(loss.inputs[1]);
      if (!statistics || statistics->op != "plait.HeadStatistics" || statistics->outputs[2] != loss.inputs[1])
        continue;
      if (!std::equal(statistics->inputs.begin(), statistics->inputs.begin() + 3, back.inputs.begin())) continue;
      if (!is_whole(log_sum_exp, *statistics)) continue;
      back.op = "plait.HeadLoss";
      back.inputs.erase(back.inputs.begin() + 3);
      back.outputs.insert(back.outputs.begin(), loss.outputs[0]);
      for (const char* of_chunks : {"chunks", "offset", "whole"}) back.attributes.erase(of_chunks);
      loss.outputs[0] = graph_.add_value("", graph_.value(loss.outputs[0]).type);  // nobody's
      return;
    }
  }

  /// Whether ranks have nothing to say to each other between the statistics and their log-sum-exp.
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

}  // namespace

void fuse_training(Graph& graph, PassContext&) { HeadFuser(graph).run(); }

}  // namespace plait
