// Raise, layers: projections, embeddings, norms, rotations and activations. The last three are found by running a
// candidate region on numbers and comparing with the canonical op, so that it does not matter how it was written.
#include <algorithm>
#include <cmath>
#include <functional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "core/passes/raise.h"

namespace plait {
namespace {

constexpr double agreement = 2e-5;  ///< largest relative difference at which a region counts as equal: f32 rounding

Tensor to_f32(const Tensor& tensor) { return materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}}); }

std::vector<float> floats(const Tensor& tensor) {
  Tensor f32 = to_f32(tensor);
  return {f32.as<float>(), f32.as<float>() + f32.elements()};
}

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return false;
    largest = std::max<double>(largest, std::fabs(b[i]));
    difference = std::max<double>(difference, std::fabs(double{a[i]} - double{b[i]}));
  }
  return difference <= agreement * std::max(largest, 1e-6);
}

/// Reproducible numbers in [low, high).
std::vector<float> samples(size_t count, float low, float high) {
  std::vector<float> out(count);
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (float& value : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = low + (high - low) * static_cast<float>(static_cast<double>(state >> 40) / double{1 << 24});
  }
  return out;
}

class LayerRaiser {
 public:
  LayerRaiser(Graph& graph, PassContext& context) : graph_(graph), context_(context) {}

  void run() {
    for (Node& node : graph_.nodes) raise_linear(node);
    add_biases();
    for (Node& node : graph_.nodes) raise_embedding(node);
    lift_regions();
  }

 private:
  void raise_linear(Node& node);
  void add_biases();
  void raise_embedding(Node& node);
  void lift_regions();
  bool lift(size_t index);
  bool lift_norm(const Region& region, Node& into);
  bool lift_activation(const Region& region, Node& into);
  bool lift_rope(const Region& region, size_t index);
  bool replace_rotary(size_t index);
  std::optional<std::vector<float>> run_region(const Region& region, const Shape& shape, int64_t tokens,
                                               const std::vector<float>& entry,
                                               const std::vector<std::pair<ValueId, Tensor>>& side = {});
  const Dims* dims(ValueId id) const {
    const auto& found = graph_.value(id).type.dims;
    return found ? &*found : nullptr;
  }
  std::optional<int64_t> last_size(ValueId id) const {
    const Dims* found = dims(id);
    if (!found || found->empty() || !found->back().is_constant()) return std::nullopt;
    return found->back().constant();
  }
  bool rank_is(ValueId id, size_t rank) const { return dims(id) && dims(id)->size() == rank; }

  Graph& graph_;
  PassContext& context_;
  std::vector<int32_t> producer_;
  std::vector<bool> data_;
  std::vector<Node> biases_;
  std::vector<std::pair<ValueId, ValueId>> biased_;  ///< value that lost its bias, value with it
};

/// A weight [n, k] for Linear from one that is [k, n] (or [n, k] already): storage types stay, a widening cast goes.
std::shared_ptr<Constant> linear_weight(const Constant& constant, bool transpose) {
  auto weight = std::make_shared<Constant>(constant);
  if (transpose) add_step(*weight, {RecipeStep::Kind::transpose, {1, 0}, {}});
  auto& steps = weight->steps;
  for (size_t i = steps.size(); i-- > 0;) {
    bool widens = steps[i].kind == RecipeStep::Kind::cast && steps[i].dtype == DType::f32;
    Constant before{
        weight->initializer, weight->source, {steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i)}};
    if (widens && (before.dtype() == DType::bf16 || before.dtype() == DType::f16)) {
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
      // What stood around the cast may now meet: two transposes that undo each other.
      std::vector<RecipeStep> all = std::move(steps);
      steps.clear();
      for (RecipeStep& step : all) add_step(*weight, std::move(step));
      break;
    }
  }
  return weight;
}

void LayerRaiser::raise_linear(Node& node) {
  bool gemm = node.op == "Gemm";
  if ((node.op != "MatMul" && !gemm) || node.inputs.size() < 2) return;
  const auto& constant = graph_.value(node.inputs[1]).constant;
  const Type& x = graph_.value(node.inputs[0]).type;
  if (!constant || constant->shape().rank() != 2 || !x.dims || x.dims->size() < 2 || x.dtype != DType::f32) return;
  if (gemm && (node.attributes.integer("transA", 0) || node.attributes.real("alpha", 1) != 1)) return;
  bool has_bias = gemm && node.inputs.size() > 2 && node.inputs[2] != no_value;
  if (has_bias && (node.attributes.real("beta", 1) != 1 || !rank_is(node.inputs[2], 1))) return;
  auto weight = linear_weight(*constant, !(gemm && node.attributes.integer("transB", 0)));
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
  Node add;  // Linear has no bias: a sharded one would be added once a rank; fuse puts it back behind sharding
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
  auto table = linear_weight(*constant, false);
  if (context_.options.dtype == DType::bf16 && table->dtype() == DType::f32)
    add_step(*table, {RecipeStep::Kind::cast, {}, DType::bf16});
  node.op = "plait.Embedding";
  node.inputs[0] = graph_.add_constant(*table);
  node.attributes = {};
  node.attributes.set("to", static_cast<int64_t>(out));
}

/// The region's output for `tokens` tokens when its entry holds `entry`; nullopt when it cannot be run.
std::optional<std::vector<float>> LayerRaiser::run_region(const Region& region, const Shape& shape, int64_t tokens,
                                                          const std::vector<float>& entry,
                                                          const std::vector<std::pair<ValueId, Tensor>>& side) {
  Evaluator evaluator(context_.options.ops, context_.options.kernels, graph_);
  Tensor f32 = Tensor::of<float>(DType::f32, shape, entry);
  DType dtype = graph_.value(region.entry).type.dtype;
  evaluator.bind(region.entry, materialize({{}, f32, {{RecipeStep::Kind::cast, {}, dtype}}}));
  for (const auto& [id, tensor] : side) evaluator.bind(id, tensor);
  for (SymbolId id = 0; id < graph_.symbols.size(); ++id) evaluator.bind_symbol(id, tokens);
  try {
    return floats(evaluator.value(region.output));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void LayerRaiser::lift_regions() {
  bool stale = true;
  std::vector<int32_t> reads;  // by value; an output of the graph is read once more
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
    if (!read) {  // the inside of a region that was lifted
      for (ValueId id : node.inputs)
        if (id != no_value) --reads[static_cast<size_t>(id)];
      node.inputs.clear();
      continue;
    }
    stale = graph_.nodes[i].op == "RotaryEmbedding" ? replace_rotary(i) : lift(i);
  }
  graph_.sort();
  graph_.remove_dead();
}

/// Tries the regions that end at node `index`, smallest first.
bool LayerRaiser::lift(size_t index) {
  const Node& node = graph_.nodes[index];
  static constexpr std::string_view ends[] = {"Mul", "Add", "Div", "Concat"};
  bool candidate = std::find(std::begin(ends), std::end(ends), node.op) != std::end(ends);
  if (!candidate || node.outputs.size() != 1 || !data_[static_cast<size_t>(node.outputs[0])]) return false;
  if (!is_float(graph_.value(node.outputs[0]).type.dtype)) return false;
  for (const Region& region : regions_of(graph_, producer_, data_, node.outputs[0], 24)) {
    if (region.nodes.size() < 2 || !is_float(graph_.value(region.entry).type.dtype)) continue;
    const Dims *from = dims(region.entry), *to = dims(region.output);
    if (!from || !to || *from != *to) continue;  // all three keep the shape
    Node lifted;
    lifted.name = node.name;
    lifted.inputs = {region.entry};
    lifted.outputs = {region.output};
    if ((region.side.empty() && (lift_activation(region, lifted) || lift_norm(region, lifted)))) {
      graph_.nodes[index] = std::move(lifted);
      return true;
    }
    if (!region.side.empty() && from->size() == 4 && lift_rope(region, index)) return true;
  }
  return false;
}

/// y = f(x), element by element, for a known f.
bool LayerRaiser::lift_activation(const Region& region, Node& into) {
  static constexpr std::string_view elementwise[] = {"Mul", "Add", "Sub",  "Div",  "Pow",  "Tanh", "Sigmoid",   "Erf",
                                                     "Exp", "Neg", "Cast", "Sqrt", "Relu", "Max",  "Reciprocal"};
  for (int32_t index : region.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (std::find(std::begin(elementwise), std::end(elementwise), node.op) == std::end(elementwise)) return false;
    for (ValueId id : node.inputs)
      if (id != no_value && graph_.value(id).constant && graph_.value(id).constant->shape().elements() != 1)
        return false;
  }
  Shape shape{1, 4, 32};
  std::vector<float> x = samples(128, -5, 5);
  auto y = run_region(region, shape, 4, x);
  if (!y) return false;
  struct Known {
    const char* name;
    const char* op;
    double (*f)(double);
  };
  static const Known known[] = {
      {"silu", "Swish", [](double v) { return v / (1 + std::exp(-v)); }},
      {"gelu_tanh", "Gelu",
       [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }},
      {"gelu", "Gelu", [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }},
      {"quick_gelu", "Swish", [](double v) { return v / (1 + std::exp(-1.702 * v)); }},
  };
  for (const Known& one : known) {
    std::vector<float> expected;
    for (float v : x) expected.push_back(static_cast<float>(one.f(v)));
    if (!close(*y, expected)) continue;
    into.op = one.op;
    if (std::string_view(one.name) == "gelu_tanh") into.attributes.set("approximate", std::string("tanh"));
    if (std::string_view(one.name) == "quick_gelu") into.attributes.set("alpha", 1.702);
    return true;
  }
  return false;
}

/// y = x / rms(x) * w, or (x - mean) / deviation * w + b, over the last axis, for any w and b.
bool LayerRaiser::lift_norm(const Region& region, Node& into) {
  bool reduces = false;
  for (int32_t index : region.nodes) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    if (node.op == "MatMul" || node.op == "plait.Linear" || node.op == "Softmax") return false;
    reduces = reduces || node.op == "ReduceMean" || node.op == "ReduceSum";
  }
  auto size = last_size(region.entry);
  if (!reduces || !size || *size < 2) return false;
  auto h = static_cast<size_t>(*size);
  Shape shape;
  for (size_t axis = 0; axis < dims(region.entry)->size(); ++axis) shape.push_back(1);
  shape[shape.rank() - 1] = *size;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) {  // constant sizes (heads) must be what the graph says
    const Dim& dim = (*dims(region.entry))[static_cast<size_t>(axis)];
    if (dim.is_constant()) shape[axis] = dim.constant();
  }
  size_t rows = static_cast<size_t>(shape.elements()) / h;
  auto run = [&](const std::function<float(size_t)>& element) {
    std::vector<float> x(rows * h);
    for (size_t i = 0; i < x.size(); ++i) x[i] = element(i % h);
    return run_region(region, shape, 1, x);
  };
  auto alternating = [](size_t i) { return i % 2 ? -1.0f : 1.0f; };
  auto large = run([&](size_t i) { return 1e3f * alternating(i); });
  auto negated = run([&](size_t i) { return -1e3f * alternating(i); });
  if (!large || !negated || large->size() != rows * h || h % 2) return false;
  // On +-c the mean is 0 and both norms give +-1: y = +-w + b.
  std::vector<float> weight(h), bias(h);
  double offset = 0;
  for (size_t i = 0; i < h; ++i) {
    weight[i] = ((*large)[i] - (*negated)[i]) / 2 * alternating(i);
    bias[i] = ((*large)[i] + (*negated)[i]) / 2;
    offset = std::max<double>(offset, std::fabs(bias[i]));
  }
  // On +-c with c^2 near epsilon, y = w c / sqrt(c^2 + eps): solve for eps where w is largest.
  auto best = static_cast<size_t>(
      std::max_element(weight.begin(), weight.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }) -
      weight.begin());
  constexpr double c = 1e-3;
  auto small = run([&](size_t i) { return static_cast<float>(c) * alternating(i); });
  if (!small || weight[best] == 0) return false;
  double ratio = std::fabs(((*small)[best] - bias[best]) / weight[best]);
  double epsilon = ratio > 0 ? c * c * (1 / (ratio * ratio) - 1) : -1;
  if (!(epsilon >= -1e-9) || epsilon > 1) return false;
  // Exporters write epsilon as f32 of a short decimal; the probe sees it through f32 arithmetic.
  double exponent = std::floor(std::log10(std::max(epsilon, 1e-30)));
  double rounded = std::round(epsilon / std::pow(10, exponent - 1)) * std::pow(10, exponent - 1);
  if (epsilon < 1e-10) epsilon = 0;
  else if (std::fabs(rounded - epsilon) < 0.01 * epsilon) epsilon = static_cast<float>(rounded);

  std::vector<float> x = samples(rows * h, -2, 3);
  auto y = run_region(region, shape, 1, x);
  if (!y) return false;
  auto matches = [&](bool centred) {
    std::vector<float> expected(x.size());
    for (size_t row = 0; row < rows; ++row) {
      double mean = 0, squares = 0;
      for (size_t i = 0; i < h; ++i) mean += x[row * h + i];
      mean = centred ? mean / static_cast<double>(h) : 0;
      for (size_t i = 0; i < h; ++i) squares += (x[row * h + i] - mean) * (x[row * h + i] - mean);
      double scale = 1 / std::sqrt(squares / static_cast<double>(h) + epsilon);
      for (size_t i = 0; i < h; ++i)
        expected[row * h + i] = static_cast<float>((x[row * h + i] - mean) * scale * weight[i] + bias[i]);
    }
    return close(*y, expected);
  };
  bool rms = offset < 1e-6 && matches(false);
  if (!rms && !matches(true)) return false;
  // The file's own weight is kept where it is the weight, so that it finds its way back; else the probe's is new.
  auto as_value = [&](const std::vector<float>& wanted) {
    for (int32_t index : region.nodes)
      for (ValueId id : graph_.nodes[static_cast<size_t>(index)].inputs) {
        const auto& constant = id == no_value ? nullptr : graph_.value(id).constant;
        if (constant && constant->dtype() == DType::f32 && constant->shape() == Shape{*size} &&
            close(floats(materialize(*constant)), wanted))
          return id;
      }
    return graph_.add_constant(Tensor::of<float>(DType::f32, Shape{*size}, wanted));
  };
  into.op = rms ? "RMSNormalization" : "LayerNormalization";
  into.inputs.push_back(as_value(weight));
  if (!rms) into.inputs.push_back(as_value(bias));
  into.attributes.set("axis", int64_t{-1});
  into.attributes.set("epsilon", epsilon);
  return true;
}

/// Builds Transpose, plait.RoPE, Transpose for x [b, heads, s, d] and angles' cos and sin, each [1, t, z].
std::vector<Node> rope_nodes(Graph& graph, ValueId x, ValueId cosine, ValueId sine, bool interleaved, ValueId output,
                             const std::string& name) {
  Attributes swap;
  swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  Node before, rope, after;
  before.op = after.op = "Transpose";
  before.attributes = after.attributes = swap;
  rope.op = "plait.RoPE";
  rope.attributes.set("interleaved", int64_t{interleaved});
  before.inputs = {x};
  before.outputs = {graph.add_value({})};
  rope.inputs = {before.outputs[0], cosine, sine};
  rope.outputs = {graph.add_value({})};
  after.inputs = {rope.outputs[0]};
  after.outputs = {output};
  before.name = rope.name = after.name = name;
  return {std::move(before), std::move(rope), std::move(after)};
}

/// ONNX's RotaryEmbedding with tables per token, or tables by position and position ids.
bool LayerRaiser::replace_rotary(size_t index) {
  Node node = graph_.nodes[index];
  bool by_position = node.inputs.size() > 3 && node.inputs[3] != no_value;
  if (!rank_is(node.inputs[0], 4) || (!by_position && !rank_is(node.inputs[1], 3))) return false;
  std::vector<Node> made;
  ValueId tables[2] = {node.inputs[1], node.inputs[2]};
  if (by_position)
    for (ValueId& table : tables) {
      Node gather;
      gather.op = "Gather";
      gather.name = node.name;
      gather.inputs = {table, node.inputs[3]};
      gather.outputs = {graph_.add_value({})};
      table = gather.outputs[0];
      made.push_back(std::move(gather));
    }
  for (Node& one : rope_nodes(graph_, node.inputs[0], tables[0], tables[1],
                              node.attributes.integer("interleaved", 0) != 0, node.outputs[0], node.name))
    made.push_back(std::move(one));
  graph_.nodes.erase(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(index));
  graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(index),
                      std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  return true;
}

/// x cos + rotate(x) sin over [b, heads, s, d], for any way of writing it: both sides are run for three tokens.
bool LayerRaiser::lift_rope(const Region& region, size_t index) {
  if (region.side.empty() || region.side.size() > 2) return false;
  const Dims& shape_dims = *dims(region.entry);
  if (!shape_dims[1].is_constant() || !shape_dims[3].is_constant()) return false;
  int64_t heads = shape_dims[1].constant(), d = shape_dims[3].constant();
  constexpr int64_t s = 3;
  // The side values are functions of the positions alone: run them for three odd ones.
  Evaluator angles(context_.options.ops, context_.options.kernels, graph_);
  std::vector<int32_t> places{5, 11, 2};
  for (ValueId id : graph_.inputs)
    if (graph_.value(id).name == "positions") angles.bind(id, Tensor::of<int32_t>(DType::i32, {1, s}, places));
  for (SymbolId id = 0; id < graph_.symbols.size(); ++id) angles.bind_symbol(id, s);
  std::vector<std::pair<ValueId, Tensor>> side;
  std::vector<std::vector<float>> values;
  try {
    for (ValueId id : region.side) {
      if (!last_size(id)) return false;
      side.emplace_back(id, angles.value(id));
      values.push_back(floats(side.back().second));
    }
  } catch (const Error&) {
    return false;
  }
  Shape shape{1, heads, s, d};
  std::vector<float> x = samples(static_cast<size_t>(shape.elements()), -1, 1);
  auto y = run_region(region, shape, s, x, side);
  if (!y || side.size() != 2) return false;
  for (size_t which : {size_t{0}, size_t{1}}) {
    const std::vector<float>&cosine = values[which], &sine = values[1 - which];
    int64_t width = *last_size(region.side[0]);
    if (static_cast<int64_t>(cosine.size()) != s * width || cosine.size() != sine.size() || width > d) return false;
    for (bool doubled : {true, false})          // the table holds each angle twice
      for (bool interleaved : {false, true}) {  // pairs are neighbours, not halves
        int64_t z = doubled ? width / 2 : width;
        if (2 * z > d || z == 0) continue;
        int64_t stride = doubled && interleaved ? 2 : 1;
        std::vector<float> expected = x;
        for (int64_t head = 0; head < heads; ++head)
          for (int64_t t = 0; t < s; ++t)
            for (int64_t k = 0; k < z; ++k) {
              size_t row = static_cast<size_t>((head * s + t) * d);
              size_t first = row + static_cast<size_t>(interleaved ? 2 * k : k),
                     second = row + static_cast<size_t>(interleaved ? 2 * k + 1 : k + z);
              float c = cosine[static_cast<size_t>(t * width + k * stride)],
                    n = sine[static_cast<size_t>(t * width + k * stride)];
              expected[first] = x[first] * c - x[second] * n;
              expected[second] = x[second] * c + x[first] * n;
            }
        if (!close(*y, expected)) continue;
        std::vector<Node> made;
        ValueId tables[2] = {region.side[which], region.side[1 - which]};
        for (ValueId& table : tables) {
          Node reshape, pick;
          reshape.op = "Reshape";
          reshape.inputs = {table, graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{1, -1, width}))};
          reshape.outputs = {graph_.add_value({})};
          table = reshape.outputs[0];
          made.push_back(std::move(reshape));
          if (z == width) continue;
          std::vector<int64_t> each;
          for (int64_t k = 0; k < z; ++k) each.push_back(k * stride);
          pick.op = "Gather";
          pick.attributes.set("axis", int64_t{2});
          pick.inputs = {table, graph_.add_constant(Tensor::of_ints(each))};
          pick.outputs = {graph_.add_value({})};
          table = pick.outputs[0];
          made.push_back(std::move(pick));
        }
        std::string name = graph_.nodes[index].name;
        for (Node& one : rope_nodes(graph_, region.entry, tables[0], tables[1], interleaved, region.output, name))
          made.push_back(std::move(one));
        graph_.nodes.erase(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(index));
        graph_.nodes.insert(graph_.nodes.begin() + static_cast<std::ptrdiff_t>(index),
                            std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
        return true;
      }
  }
  return false;
}

}  // namespace

void raise_layers(Graph& graph, PassContext& context) { LayerRaiser(graph, context).run(); }

}  // namespace plait
