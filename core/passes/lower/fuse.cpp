// Pass fuse: local fusions after sharding, for ops that kernels run faster together. None changes results.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/base/activation.h"
#include "core/base/linear_operands.h"
#include "core/graph/links.h"
#include "core/passes/lower/lower.h"

namespace plait {
namespace {

class Fuser {
 public:
  Fuser(Graph& graph, DeviceKind device) : graph_(graph), device_(device) {}

  void run() {
    add_bias();
    split_adapted();
    gate();
    group();
    if (device_ != DeviceKind::host) norm_sums();
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  void index() { links_.emplace(graph_); }
  Node* maker(ValueId id) {
    const int32_t at = links_->producer(id);
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }
  bool is_vector(ValueId id) const {
    const auto& constant = graph_.value(id).constant;
    return constant && constant->shape().rank() == 1 && constant->dtype() == DType::f32;
  }

  static bool has_no_bias(const Node& node) {
    return (node.op == "plait.Linear" || node.op == "plait.AdaptedLinear") &&
           (node.inputs.size() <= linear_bias || node.inputs[linear_bias] == no_value);
  }
  /// A Linear without bias.
  static bool is_plain(const Node& node) { return node.op == "plait.Linear" && has_no_bias(node); }
  /// What Linears of one node have in common: dtype, attributes, the operands of a quantised weight, and its blocks.
  using Likeness = std::tuple<DType, int64_t, int64_t, std::vector<int64_t>>;
  Likeness likeness(const Node& linear) const {
    const Constant& weight = *graph_.value(linear.inputs[linear_w]).constant;
    std::vector<int64_t> form;
    for (int axis = 1; axis < weight.shape().rank(); ++axis) form.push_back(weight.shape()[axis]);
    for (size_t k = linear_scales; k < linear.inputs.size(); ++k) form.push_back(linear.inputs[k] != no_value);
    return {weight.dtype(), linear.attributes.integer("round_x", 0), linear.attributes.integer("zero", 0), form};
  }

  /// Add(Linear(x, w), bias) -> Linear(x, w, bias), and the same of AdaptedLinear.
  void add_bias() {
    index();
    for (Node& node : graph_.nodes) {
      if (node.op != "Add") continue;
      for (size_t side : {size_t{0}, size_t{1}}) {
        Node* linear = maker(node.inputs[side]);
        if (!linear || !has_no_bias(*linear) || !links_->read_once(node.inputs[side]) ||
            !is_vector(node.inputs[1 - side]))
          continue;
        if (graph_.value(node.inputs[1 - side]).constant->shape()[0] !=
            graph_.value(linear->inputs[linear_w]).constant->shape()[0])
          continue;
        ValueId bias = node.inputs[1 - side];
        node.op = linear->op;
        node.inputs = linear->inputs;
        if (node.inputs.size() <= linear_bias) node.inputs.push_back(bias);
        else node.inputs[linear_bias] = bias;
        node.attributes = linear->attributes;
        break;
      }
    }
    graph_.remove_dead();
  }

  /// AdaptedLinear(x, w, ..., a, b, adapters) -> AddAdapters(Linear(x, w, ...), x, a, b, adapters), in place: rows
  /// without an adapter cost nothing.
  void split_adapted() {
    for (size_t i = 0, old = graph_.nodes.size(); i < old; ++i) {
      if (graph_.nodes[i].op != "plait.AdaptedLinear") continue;
      const ValueId y = graph_.nodes[i].outputs[0], made = graph_.add_value("", graph_.value(y).type);
      Node add = graph_.nodes[i];
      add.op = "plait.AddAdapters";
      add.attributes = {};
      add.inputs.erase(add.inputs.begin() + linear_w, add.inputs.begin() + linear_operands);
      add.inputs.insert(add.inputs.begin(), made);
      Node& linear = graph_.nodes[i];
      linear.op = "plait.Linear";
      linear.inputs.resize(linear_operands);
      while (linear.inputs.back() == no_value) linear.inputs.pop_back();
      linear.outputs = {made};
      graph_.nodes.push_back(std::move(add));
    }
    graph_.sort();
  }

  static std::optional<Activation> activation(const Node& node) {
    if (node.op == "Swish" && node.attributes.real("alpha", 1) == 1) return Activation::silu;
    if (node.op == "Gelu" && node.attributes.string("approximate", "none") == "tanh") return Activation::gelu_tanh;
    if (node.op == "Gelu") return Activation::gelu;
    if (node.op == "Relu") return Activation::relu;
    return std::nullopt;
  }

  /// Mul(act(Linear(x, gate)), Linear(x, up)) -> GatedLinear(x, gate, up).
  void gate() {
    index();
    for (Node& node : graph_.nodes) {
      if (node.op != "Mul") continue;
      for (size_t side : {size_t{0}, size_t{1}}) {
        Node *act = maker(node.inputs[side]), *up = maker(node.inputs[1 - side]);
        const std::optional<Activation> by = act ? activation(*act) : std::nullopt;
        Node* gate = by ? maker(act->inputs[0]) : nullptr;
        if (!gate || !up || !is_plain(*gate) || !is_plain(*up) || gate == up ||
            gate->inputs[linear_x] != up->inputs[linear_x])
          continue;
        if (!links_->read_once(node.inputs[side]) || !links_->read_once(node.inputs[1 - side]) ||
            !links_->read_once(act->inputs[0]))
          continue;
        const ValueId gate_w = gate->inputs[linear_w], up_w = up->inputs[linear_w];
        const auto &a = graph_.value(gate_w).constant, &b = graph_.value(up_w).constant;
        if (likeness(*gate) != likeness(*up) || !(a->shape() == b->shape())) continue;
        node.attributes = gate->attributes;
        node.inputs = {gate->inputs[linear_x], gate_w, up_w};
        for (const Node* one : {gate, up})  // scales and zero points
          for (size_t k = linear_scales; k < linear_operands && gate->inputs.size() > linear_scales; ++k)
            node.inputs.push_back(k < one->inputs.size() ? one->inputs[k] : no_value);
        node.op = "plait.GatedLinear";
        node.attributes.set("activation", std::string(activation_name(*by)));
        break;
      }
    }
    graph_.remove_dead();
  }

  /// Linears without bias that read the same value become one Linears: one parallel region instead of three.
  void group() {
    index();
    std::map<std::pair<ValueId, Likeness>, std::vector<size_t>> by_input;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (is_plain(node)) by_input[{node.inputs[0], likeness(node)}].push_back(i);
    }
    std::vector<bool> gone(graph_.nodes.size());
    for (const auto& [key, members] : by_input) {
      if (members.size() < 2) continue;
      Node& first = graph_.nodes[members[0]];
      first.op = "plait.Linears";
      const size_t parts = first.inputs.size() > 3 ? first.inputs.size() - 2 : 1;
      if (parts > 1) {
        first.attributes.set("parts", static_cast<int64_t>(parts));
        first.inputs.erase(first.inputs.begin() + 2);
      }
      for (size_t k = 1; k < members.size(); ++k) {
        const Node& other = graph_.nodes[members[k]];
        first.inputs.push_back(other.inputs[1]);
        if (parts > 1) first.inputs.insert(first.inputs.end(), other.inputs.begin() + 3, other.inputs.end());
        first.outputs.push_back(other.outputs[0]);
        gone[members[k]] = true;
      }
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!gone[i]) kept.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(kept);
  }

  /// Norm(Add(a, b)) -> the norm of a sum, which returns the sum too: a launch instead of two, on each rank of a mesh after a sum of all
  /// ranks. The processor passes over a row either way. Bits are the same: the sum is rounded to f32 before it is used.
  void norm_sums() {
    index();
    std::vector<bool> gone(graph_.nodes.size());
    for (Node& node : graph_.nodes) {
      const bool centred = node.op == "LayerNormalization";
      if ((!centred && node.op != "RMSNormalization") || node.outputs.size() != 1) continue;
      const ValueId sum = node.inputs[0];
      const Node* add = maker(sum);
      if (!add || add->op != "Add" || gone[static_cast<size_t>(add - graph_.nodes.data())]) continue;
      if (!is_row_of_f32(sum, node) || !have_one_type({add->inputs[0], add->inputs[1], sum, node.outputs[0]}))
        continue;
      gone[static_cast<size_t>(add - graph_.nodes.data())] = true;
      Attributes attributes;
      attributes.set("epsilon", node.attributes.real("epsilon", 1e-5));
      node.op = centred ? "com.microsoft.SkipLayerNormalization" : "com.microsoft.SkipSimplifiedLayerNormalization";
      node.attributes = std::move(attributes);
      node.inputs.erase(node.inputs.begin());
      node.inputs.insert(node.inputs.begin(), add->inputs.begin(), add->inputs.end());
      node.outputs = {node.outputs[0], no_value, no_value, sum};
    }
    size_t at = 0;
    std::erase_if(graph_.nodes, [&](const Node&) { return gone[at++]; });
  }
  /// Whether the norm is over the last axis of a value of f32, with scale and bias a row each.
  bool is_row_of_f32(ValueId x, const Node& norm) const {
    const Type& type = graph_.value(x).type;
    const int64_t axis = norm.attributes.integer("axis", -1);
    if (type.dtype != DType::f32 || !type.dims || (axis != -1 && axis != static_cast<int64_t>(type.dims->size()) - 1))
      return false;
    return std::all_of(norm.inputs.begin() + 1, norm.inputs.end(), [&](ValueId row) {
      return row == no_value || (graph_.value(row).constant && graph_.value(row).constant->shape().rank() == 1);
    });
  }
  bool have_one_type(std::initializer_list<ValueId> ids) const {
    const Type& first = graph_.value(*ids.begin()).type;
    return std::all_of(ids.begin(), ids.end(), [&](ValueId id) {
      const Type& type = graph_.value(id).type;
      return type.dtype == first.dtype && type.dims && first.dims && *type.dims == *first.dims;
    });
  }

  Graph& graph_;
  const DeviceKind device_;
  std::optional<Links> links_;
};

}  // namespace

void fuse(Graph& graph, PassContext& context) { Fuser(graph, context.options.device).run(); }

}  // namespace plait
