// Raise, layers: projections, embeddings, norms, rotations and activations. The last three are found by evaluating a
// candidate region on numbers and comparing with the canonical op, independent of its form.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/raise/region.h"

namespace plait {
namespace {

class LayerRaiser {
 public:
  LayerRaiser(Graph& graph, PassContext& context) : graph_(graph), context_(context), probe_(graph, context) {}

  void run() {
    data_ = data_values(graph_, context_.decoder.interface);
    for (Node& node : graph_.nodes) raise_linear(node);
    for (Node& node : graph_.nodes) store_experts(graph_, context_, node);
    add_biases();
    split_linears(graph_);
    for (Node& node : graph_.nodes) raise_embedding(node);
    lift_regions();
  }

 private:
  void raise_linear(Node& node);
  void add_biases();
  void raise_embedding(Node& node);
  void lift_regions();
  bool lift(size_t index);
  void replace(size_t index, std::vector<Node> by);
  bool rank_is(ValueId id, size_t rank) const { return probe_.dims(id) && probe_.dims(id)->size() == rank; }

  Graph& graph_;
  PassContext& context_;
  RegionProbe probe_;
  std::vector<int32_t> producer_;
  std::vector<bool> data_;
  std::vector<Node> biases_;
  std::vector<std::pair<ValueId, ValueId>> biased_;  ///< value without its bias, value with it
};

void LayerRaiser::raise_linear(Node& node) {
  bool gemm = node.op == "Gemm";
  if ((node.op != "MatMul" && !gemm) || node.inputs.size() < 2) return;
  const auto& constant = graph_.value(node.inputs[1]).constant;
  const Type& x = graph_.value(node.inputs[0]).type;
  if (!constant || constant->shape().rank() != 2 || !x.dims || x.dims->size() < 2 || x.dtype != DType::f32) return;
  if (gemm && (node.attributes.integer("transA", 0) || node.attributes.real("alpha", 1) != 1)) return;
  bool has_bias = gemm && node.inputs.size() > 2 && node.inputs[2] != no_value;
  if (has_bias && (node.attributes.real("beta", 1) != 1 || !rank_is(node.inputs[2], 1))) return;
  auto weight = storage_constant(*constant, !(gemm && node.attributes.integer("transB", 0)));
  if (context_.options.dtype == DType::bf16 && weight->dtype() == DType::f32)
    add_step(*weight, {RecipeStep::Kind::cast, {}, DType::bf16});
  if (weight->dtype() != DType::f32 && weight->dtype() != DType::bf16 && weight->dtype() != DType::f16) return;
  ValueId bias = has_bias ? node.inputs[2] : no_value;
  node.op = "plait.Linear";
  node.inputs = {node.inputs[0], graph_.add_constant(*weight)};
  node.attributes = {};
  if (context_.options.dtype == DType::bf16 && weight->dtype() == DType::bf16)
    node.attributes.set("round_x", int64_t{1});
  if (bias == no_value) return;
  Node add;  // Linear has no bias: a sharded one would be added once per rank; fuse restores it after sharding
  add.op = "Add";
  add.name = node.name;
  add.inputs = {node.outputs[0], bias};
  add.outputs = {graph_.add_value({}, graph_.value(node.outputs[0]).type)};
  biased_.emplace_back(node.outputs[0], add.outputs[0]);
  biases_.push_back(std::move(add));
}

void LayerRaiser::add_biases() {
  for (const auto& [from, to] : biased_) graph_.replace_uses(from, to);
  for (Node& node : biases_) graph_.nodes.push_back(std::move(node));
  if (!biases_.empty()) graph_.sort();
}

/// Gather of rows of a weight table by the tokens' ids or positions.
void LayerRaiser::raise_embedding(Node& node) {
  if (node.op != "Gather" || node.attributes.integer("axis", 0) != 0) return;
  const auto& constant = graph_.value(node.inputs[0]).constant;
  DType out = graph_.value(node.outputs[0]).type.dtype;
  if (!constant || constant->shape().rank() != 2 || !is_float(out) || !rank_is(node.inputs[1], 2)) return;
  auto table = storage_constant(*constant, false);
  // Tables indexed by positions, such as angles, keep their precision.
  if (context_.options.dtype == DType::bf16 && table->dtype() == DType::f32 &&
      data_[static_cast<size_t>(node.inputs[1])])
    add_step(*table, {RecipeStep::Kind::cast, {}, DType::bf16});
  node.op = "plait.Embedding";
  node.inputs[0] = graph_.add_constant(*table);
  node.attributes = {};
  node.attributes.set("to", static_cast<int64_t>(out));
}

void LayerRaiser::lift_regions() {
  bool stale = true;
  std::vector<int32_t> reads;  // by value; graph outputs count once more
  for (size_t i = graph_.nodes.size(); i-- > 0;) {
    if (stale) {
      producer_ = producers(graph_);
      reads.assign(static_cast<size_t>(graph_.value_count()), 0);
      for (const Node& node : graph_.nodes)
        for (ValueId id : node.inputs)
          if (id != no_value) ++reads[static_cast<size_t>(id)];
      for (ValueId id : graph_.outputs) ++reads[static_cast<size_t>(id)];
      data_ = data_values(graph_, context_.decoder.interface);
      stale = false;
    }
    Node& node = graph_.nodes[i];
    bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                            [&](ValueId id) { return id != no_value && reads[static_cast<size_t>(id)]; });
    if (!read) {  // the inside of a raised region
      for (ValueId id : node.inputs)
        if (id != no_value) --reads[static_cast<size_t>(id)];
      node.inputs.clear();
      continue;
    }
    stale = lift(i);
  }
  graph_.sort();
  graph_.remove_dead();
}

/// Replaces node `index` by nodes that get its name.
void LayerRaiser::replace(size_t index, std::vector<Node> by) {
  for (Node& node : by) node.name = graph_.nodes[index].name;
  auto place = graph_.nodes.erase(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(index));
  graph_.nodes.insert(place, std::make_move_iterator(by.begin()), std::make_move_iterator(by.end()));
}

/// Tries the regions that end at node `index`, smallest first.
bool LayerRaiser::lift(size_t index) {
  const Node& node = graph_.nodes[index];
  if (node.op == "RotaryEmbedding") {
    auto rope = lift_rotary_op(probe_, node);
    if (rope) replace(index, std::move(*rope));
    return rope.has_value();
  }
  static constexpr std::string_view ends[] = {"Mul", "Add", "Div", "Concat"};
  auto is_centred = [&](ValueId id) {
    int32_t maker = producer_[static_cast<size_t>(id)];
    return maker >= 0 && graph_.nodes[static_cast<size_t>(maker)].op == "Sub";
  };
  bool candidate = std::find(std::begin(ends), std::end(ends), node.op) != std::end(ends) ||
                   (node.op == "RMSNormalization" && is_centred(node.inputs[0]));
  if (!candidate || node.outputs.size() != 1 || !data_[static_cast<size_t>(node.outputs[0])]) return false;
  if (!is_float(graph_.value(node.outputs[0]).type.dtype)) return false;
  std::vector<Node> smaller;
  for (const Region& region : regions_of(graph_, producer_, data_, node.outputs[0], 24)) {
    if (region.nodes.size() < 2 || !is_float(graph_.value(region.entry).type.dtype)) continue;
    const Dims *from = probe_.dims(region.entry), *to = probe_.dims(region.output);
    if (!from || !to || *from != *to) continue;  // all three keep the shape
    std::vector<Node> by;
    if (!region.side.empty()) {
      if (auto rope = lift_rope(probe_, region)) by = std::move(*rope);
    } else if (auto activation = lift_activation(probe_, region)) {
      by = {std::move(*activation)};
    } else if (auto norm = lift_norm(probe_, region)) {
      // A LayerNorm without its mean subtraction looks like an RMSNorm of the difference.
      bool centred = norm->op == "RMSNormalization" && is_centred(region.entry);
      by = {std::move(*norm)};
      if (centred) smaller = by;
      if (centred) continue;
    }
    if (by.empty()) continue;
    replace(index, std::move(by));
    return true;
  }
  if (smaller.empty()) return false;
  replace(index, std::move(smaller));
  return true;
}

}  // namespace

void store_experts(Graph& graph, const PassContext& context, Node& node) {
  if (node.op != "plait.Experts" || graph.value(node.inputs[0]).type.dtype != DType::f32) return;
  const bool narrow = context.options.dtype == DType::bf16;
  bool all_narrow = narrow;
  for (size_t k : {size_t{3}, size_t{4}, size_t{5}}) {
    if (node.inputs[k] == no_value) continue;
    const auto constant = graph.value(node.inputs[k]).constant;
    const bool whole = constant && is_float(constant->dtype());
    all_narrow = all_narrow && whole;
    if (!whole) continue;
    auto weight = storage_constant(*constant, false);
    if (narrow && weight->dtype() == DType::f32) add_step(*weight, {RecipeStep::Kind::cast, {}, DType::bf16});
    all_narrow = all_narrow && weight->dtype() == DType::bf16;
    node.inputs[k] = graph.add_constant(*weight);
  }
  if (all_narrow) node.attributes.set("round_x", int64_t{1});
}

std::shared_ptr<Constant> storage_constant(const Constant& constant, bool transpose) {
  auto weight = std::make_shared<Constant>(constant);
  if (transpose) add_step(*weight, {RecipeStep::Kind::transpose, {1, 0}, {}});
  auto& steps = weight->steps;
  for (size_t i = steps.size(); i-- > 0;) {
    bool widens = steps[i].kind == RecipeStep::Kind::cast && steps[i].dtype == DType::f32;
    Constant before = *weight;
    before.steps.resize(i);
    if (widens && (before.dtype() == DType::bf16 || before.dtype() == DType::f16)) {
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
      // Layout steps around the cast may now be adjacent: two transposes that cancel.
      std::vector<RecipeStep> all = std::move(steps);
      steps.clear();
      for (RecipeStep& step : all) add_step(*weight, std::move(step));
      break;
    }
  }
  return weight;
}

void raise_layers(Graph& graph, PassContext& context) { LayerRaiser(graph, context).run(); }

}  // namespace plait
