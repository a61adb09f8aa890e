#include "core/quantize/weights.h"

#include <algorithm>
#include <set>

#include "core/base/text.h"

namespace plait {
namespace {

using Kind = QuantizedNode::Kind;

class WeightFinder {
 public:
  WeightFinder(const Graph& graph, const DecoderInterface& interface)
      : graph_(graph), interface_(interface), producer_(producers(graph)), consumer_(consumers(graph)) {}

  WeightsFound run() {
    const std::set<int32_t> heads = head_nodes();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      const Node& node = graph_.nodes[i];
      if (node.op == "MatMul" || node.op == "Gemm") add_product(at, heads.contains(at) ? Kind::head : Kind::linear);
      else if (node.op == "Gather") add_lookup(at);
    }
    return std::move(out_);
  }

 private:
  const Node* maker(ValueId id) const {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }

  /// A constant, also through Transpose, Cast and Identity.
  std::optional<Constant> constant_of(ValueId id) const {
    if (id == no_value) return std::nullopt;
    if (const auto& constant = graph_.value(id).constant) return *constant;
    const Node* node = maker(id);
    if (!node || (node->op != "Transpose" && node->op != "Cast" && node->op != "Identity")) return std::nullopt;
    std::optional<Constant> out = constant_of(node->inputs[0]);
    if (!out || node->op == "Identity") return out;
    if (node->op == "Cast") {
      const auto to = static_cast<DType>(node->attributes.integer("to"));
      if (!is_float(to) || !is_float(out->dtype())) return std::nullopt;
      add_step(*out, {RecipeStep::Kind::cast, {}, to});
    } else {
      if (out->shape().rank() != 2) return std::nullopt;
      if (node->attributes.has("perm") && node->attributes.integers("perm") != std::vector<int64_t>{1, 0}) return out;
      add_step(*out, {RecipeStep::Kind::transpose, {1, 0}});
    }
    return out;
  }

  void keep(const Node& node, std::string_view why) { out_.kept.push_back(cat(describe(graph_, node), ": ", why)); }

  void add_product(int32_t at, Kind kind) {
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    std::optional<Constant> weight = constant_of(node.inputs[1]);
    if (!weight || !is_float(weight->dtype()) || constant_of(node.inputs[0])) return;
    const bool gemm = node.op == "Gemm";
    if (weight->shape().rank() != 2) return keep(node, cat("its weight is ", weight->shape().text()));
    if (gemm &&
        (node.attributes.real("alpha", 1) != 1 || node.attributes.integer("transA", 0) != 0 || !plain_bias(node)))
      return keep(node, "alpha, beta, transA or the shape of C");
    if (weight->dtype() == DType::f64) return keep(node, "it computes in f64");
    if (kind != Kind::head && chooses_experts(at)) return keep(node, "it chooses experts");
    const DType dtype = weight->dtype();
    if (!gemm || node.attributes.integer("transB", 0) == 0) add_step(*weight, {RecipeStep::Kind::transpose, {1, 0}});
    out_.nodes.push_back({kind, at, node.inputs[0], std::move(*weight), dtype, graph_.value(node.outputs[0]).name});
  }

  bool plain_bias(const Node& node) const {
    if (node.inputs.size() < 3 || node.inputs[2] == no_value) return true;
    const auto& dims = graph_.value(node.inputs[2]).type.dims;
    return dims && dims->size() == 1 && !((*dims)[0] == Dim(1)) && node.attributes.real("beta", 1) == 1;
  }

  void add_lookup(int32_t at) {
    const Node& node = graph_.nodes[static_cast<size_t>(at)];
    if (interface_.ids == no_value || source_of(node.inputs[1]) != interface_.ids) return;
    std::optional<Constant> table = constant_of(node.inputs[0]);
    if (!table || !is_float(table->dtype()) || table->dtype() == DType::f64 || table->shape().rank() != 2 ||
        node.attributes.integer("axis", 0) != 0)
      return;
    const DType dtype = table->dtype();
    out_.nodes.push_back(
        {Kind::embedding, at, node.inputs[1], std::move(*table), dtype, graph_.value(node.outputs[0]).name});
  }

  /// The value that this one is a reshaped or converted copy of.
  ValueId source_of(ValueId id) const {
    for (const Node* node = maker(id); node; node = maker(id)) {
      const bool same = node->op == "Cast" || node->op == "Reshape" || node->op == "Identity" ||
                        node->op == "Squeeze" || node->op == "Unsqueeze" || node->op == "Flatten";
      if (!same) break;
      id = node->inputs[0];
    }
    return id;
  }

  /// The products that the logits come from with no other in between.
  std::set<int32_t> head_nodes() const {
    std::set<int32_t> out, seen;
    if (interface_.logits < 0) return out;
    std::vector<ValueId> todo{graph_.outputs[static_cast<size_t>(interface_.logits)]};
    while (!todo.empty()) {
      const ValueId id = todo.back();
      todo.pop_back();
      const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
      if (at < 0 || !seen.insert(at).second) continue;
      const Node& node = graph_.nodes[static_cast<size_t>(at)];
      if (node.op == "MatMul" || node.op == "Gemm") out.insert(at);
      else todo.push_back(node.inputs.empty() ? no_value : node.inputs[0]);
    }
    return out;
  }

  /// Whether a product's results go to a TopK, or to an op of experts, through element-wise ops.
  bool chooses_experts(int32_t at) const {
    std::vector<int32_t> todo{at};
    std::set<int32_t> seen;
    while (!todo.empty()) {
      const int32_t one = todo.back();
      todo.pop_back();
      if (!seen.insert(one).second) continue;
      for (const ValueId id : graph_.nodes[static_cast<size_t>(one)].outputs) {
        if (id == no_value) continue;
        for (const int32_t reader : consumer_[static_cast<size_t>(id)]) {
          const Node& node = graph_.nodes[static_cast<size_t>(reader)];
          if (node.op == "TopK") return true;
          if (node.op.ends_with("MoE") && node.inputs.size() > 1 && node.inputs[1] == id) return true;
          static constexpr std::string_view through[] = {"Softmax",  "Sigmoid", "Cast", "Reshape",
                                                         "Identity", "Add",     "Sub"};
          if (std::find(std::begin(through), std::end(through), node.op) != std::end(through)) todo.push_back(reader);
        }
      }
    }
    return false;
  }

  const Graph& graph_;
  const DecoderInterface& interface_;
  const std::vector<int32_t> producer_;
  const std::vector<std::vector<int32_t>> consumer_;
  WeightsFound out_;
};

}  // namespace

WeightsFound find_weights(const Graph& graph, const DecoderInterface& interface) {
  return WeightFinder(graph, interface).run();
}

}  // namespace plait
