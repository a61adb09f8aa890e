// Pass fuse: local fusions, after sharding, of what a kernel does better in one go. None changes what is computed.
#include <algorithm>
#include <map>

#include "core/passes/compile.h"

namespace plait {
namespace {

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph) {}

  void run() {
    add_bias();
    gate();
    group();
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  void index() {
    producer_ = producers(graph_);
    readers_ = consumers(graph_);
  }
  Node* maker(ValueId id) {
    int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }
  bool read_once(ValueId id) const {
    return readers_[static_cast<size_t>(id)].size() == 1 &&
           std::find(graph_.outputs.begin(), graph_.outputs.end(), id) == graph_.outputs.end();
  }
  bool is_vector(ValueId id) const {
    const auto& constant = graph_.value(id).constant;
    return constant && constant->shape().rank() == 1 && constant->dtype() == DType::f32;
  }

  /// Add(Linear(x, w), bias) -> Linear(x, w, bias).
  void add_bias() {
    index();
    for (Node& node : graph_.nodes) {
      if (node.op != "Add") continue;
      for (size_t side : {size_t{0}, size_t{1}}) {
        Node* linear = maker(node.inputs[side]);
        if (!linear || linear->op != "plait.Linear" || linear->inputs.size() != 2 || !read_once(node.inputs[side]) ||
            !is_vector(node.inputs[1 - side]))
          continue;
        if (graph_.value(node.inputs[1 - side]).constant->shape()[0] !=
            graph_.value(linear->inputs[1]).constant->shape()[0])
          continue;
        ValueId bias = node.inputs[1 - side];
        node.op = "plait.Linear";
        node.inputs = {linear->inputs[0], linear->inputs[1], bias};
        node.attributes = linear->attributes;
        break;
      }
    }
    graph_.remove_dead();
  }

  static const char* activation(const Node& node) {
    if (node.op == "Swish" && node.attributes.real("alpha", 1) == 1) return "silu";
    if (node.op == "Gelu") return node.attributes.string("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu";
    if (node.op == "Relu") return "relu";
    return nullptr;
  }

  /// Mul(act(Linear(x, gate)), Linear(x, up)) -> GatedLinear(x, gate, up).
  void gate() {
    index();
    for (Node& node : graph_.nodes) {
      if (node.op != "Mul") continue;
      for (size_t side : {size_t{0}, size_t{1}}) {
        Node *act = maker(node.inputs[side]), *up = maker(node.inputs[1 - side]);
        const char* name = act ? activation(*act) : nullptr;
        Node* gate = name ? maker(act->inputs[0]) : nullptr;
        if (!gate || !up || gate->op != "plait.Linear" || up->op != "plait.Linear" || gate == up) continue;
        if (gate->inputs.size() != 2 || up->inputs.size() != 2 || gate->inputs[0] != up->inputs[0]) continue;
        if (!read_once(node.inputs[side]) || !read_once(node.inputs[1 - side]) || !read_once(act->inputs[0]))
          continue;
        const auto &a = graph_.value(gate->inputs[1]).constant, &b = graph_.value(up->inputs[1]).constant;
        if (a->dtype() != b->dtype() || !(a->shape() == b->shape())) continue;
        node.attributes = gate->attributes;
        node.inputs = {gate->inputs[0], gate->inputs[1], up->inputs[1]};
        node.op = "plait.GatedLinear";
        node.attributes.set("activation", std::string(name));
        break;
      }
    }
    graph_.remove_dead();
  }

  /// Linears without bias that read the same value become one Linears: one hand-over to the threads instead of three.
  void group() {
    index();
    std::map<std::pair<ValueId, DType>, std::vector<size_t>> by_input;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == "plait.Linear" && node.inputs.size() == 2)
        by_input[{node.inputs[0], graph_.value(node.inputs[1]).type.dtype}].push_back(i);
    }
    std::vector<bool> gone(graph_.nodes.size());
    for (const auto& [key, members] : by_input) {
      if (members.size() < 2) continue;
      Node& first = graph_.nodes[members[0]];
      first.op = "plait.Linears";
      for (size_t k = 1; k < members.size(); ++k) {
        const Node& other = graph_.nodes[members[k]];
        first.inputs.push_back(other.inputs[1]);
        first.outputs.push_back(other.outputs[0]);
        gone[members[k]] = true;
      }
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!gone[i]) kept.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(kept);
  }

  Graph& graph_;
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> readers_;
};

}  // namespace

void fuse(Graph& graph, PassContext&) { Fuser(graph).run(); }

}  // namespace plait
