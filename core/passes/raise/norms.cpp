// Raise, norms and activations, found by evaluating a region on numbers.
#include <algorithm>
#include <cmath>

#include "core/base/activation.h"
#include "core/base/text.h"
#include "core/passes/raise/region.h"

namespace plait {

std::optional<Node> lift_activation(const RegionProbe& probe, const Region& region) {
  static constexpr std::string_view elementwise[] = {"Mul", "Add", "Sub",  "Div",  "Pow",  "Tanh", "Sigmoid",   "Erf",
                                                     "Exp", "Neg", "Cast", "Sqrt", "Relu", "Max",  "Reciprocal"};
  for (int32_t index : region.nodes) {
    const Node& node = probe.graph.nodes[static_cast<size_t>(index)];
    if (std::find(std::begin(elementwise), std::end(elementwise), node.op) == std::end(elementwise))
      return std::nullopt;
    for (ValueId id : node.inputs)
      if (id != no_value && probe.graph.value(id).constant && probe.graph.value(id).constant->shape().elements() != 1)
        return std::nullopt;
  }
  Shape shape{1, 4, 32};
  std::vector<float> x = samples(128, -5, 5);
  auto y = probe.run(region, shape, 4, x);
  if (!y) return std::nullopt;
  struct Known {
    const char* op;
    double (*f)(double);
    std::string attribute = {};
    Attribute value = {};
  };
  constexpr double quick = 1.702;  // CLIP's approximation of GELU
  static const Known known[] = {
      {"Swish", [](double v) { return activate(Activation::silu, v); }},
      {"Gelu", [](double v) { return activate(Activation::gelu_tanh, v); }, "approximate", std::string("tanh")},
      {"Gelu", [](double v) { return activate(Activation::gelu, v); }},
      {"Swish", [](double v) { return activate(Activation::silu, quick * v) / quick; }, "alpha", quick},
  };
  for (const Known& one : known) {
    std::vector<float> expected;
    for (float v : x) expected.push_back(static_cast<float>(one.f(v)));
    if (!close(*y, expected)) continue;
    Node into;
    into.op = one.op;
    into.inputs = {region.entry};
    into.outputs = {region.output};
    if (!one.attribute.empty()) into.attributes.set(one.attribute, one.value);
    return into;
  }
  return std::nullopt;
}

namespace {

/// Evaluates a region on rows of `h` numbers.
class NormProbe {
 public:
  NormProbe(const RegionProbe& probe, const Region& region, size_t h) : probe_(probe), region_(region), h_(h) {
    const Dims& dims = *probe.dims(region.entry);
    for (const Dim& dim : dims) shape_.push_back(dim.is_constant() ? dim.constant() : 1);  // heads stay
    rows_ = static_cast<size_t>(shape_.elements()) / h;
  }

  /// The output of one row of c, -c, c, ... (all rows are equal); nullopt if the region does not keep the shape.
  std::optional<std::vector<float>> alternating(float c) const {
    std::vector<float> x(rows_ * h_);
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % h_ % 2 ? -c : c;
    auto y = probe_.run(region_, shape_, 1, x);
    if (!y || y->size() != x.size()) return std::nullopt;
    y->resize(h_);
    return y;
  }

  bool equals(const std::vector<float>& weight, const std::vector<float>& bias, double epsilon, bool centred) const {
    std::vector<float> x = samples(rows_ * h_, -2, 3), expected(x.size());
    auto count = static_cast<double>(h_);
    for (size_t row = 0; row < rows_; ++row) {
      const float* from = x.data() + row * h_;
      double mean = 0, squares = 0;
      for (size_t i = 0; i < h_; ++i) mean += from[i];
      mean = centred ? mean / count : 0;
      for (size_t i = 0; i < h_; ++i) squares += (from[i] - mean) * (from[i] - mean);
      double scale = 1 / std::sqrt(squares / count + epsilon);
      for (size_t i = 0; i < h_; ++i)
        expected[row * h_ + i] = static_cast<float>((from[i] - mean) * scale * weight[i] + bias[i]);
    }
    auto y = probe_.run(region_, shape_, 1, x);
    return y && close(*y, expected);
  }

 private:
  const RegionProbe& probe_;
  const Region& region_;
  size_t h_, rows_ = 0;
  Shape shape_;
};

bool may_be_a_norm(const Graph& graph, const Region& region) {
  bool reduces = false;
  for (int32_t index : region.nodes) {
    const Node& node = graph.nodes[static_cast<size_t>(index)];
    if (node.op == "MatMul" || node.op == "plait.Linear" || node.op == "Softmax") return false;
    reduces = reduces || node.op == "ReduceMean" || node.op == "ReduceSum";
  }
  return reduces;
}

/// Epsilon from y = w c / sqrt(c^2 + eps), with c^2 close to usual values; nullopt if y does not fit.
std::optional<double> epsilon_of(double ratio, double c) {
  double epsilon = ratio > 0 ? c * c * (1 / (ratio * ratio) - 1) : -1;
  if (!(epsilon >= -1e-9) || epsilon > 1) return std::nullopt;
  if (epsilon < 1e-10) return 0;
  // It is the f32 of a short decimal, after f32 arithmetic.
  double unit = std::pow(10, std::floor(std::log10(epsilon)) - 1), rounded = std::round(epsilon / unit) * unit;
  return std::fabs(rounded - epsilon) < 0.01 * epsilon ? static_cast<float>(rounded) : epsilon;
}

/// The file's own vector if it equals the wanted one, so that training can write it back; otherwise a new constant.
ValueId vector_value(Graph& graph, const Region& region, const std::vector<float>& wanted) {
  Shape shape{static_cast<int64_t>(wanted.size())};
  for (int32_t index : region.nodes)
    for (ValueId id : graph.nodes[static_cast<size_t>(index)].inputs) {
      const auto& constant = id == no_value ? nullptr : graph.value(id).constant;
      if (!constant || constant->dtype() != DType::f32 || !(constant->shape() == shape)) continue;
      if (close(floats(materialize(*constant)), wanted)) return id;
    }
  return graph.add_constant(Tensor::of<float>(DType::f32, shape, wanted));
}

}  // namespace

std::optional<Node> lift_norm(const RegionProbe& probe, const Region& region) {
  auto size = probe.last_size(region.entry);
  if (!may_be_a_norm(probe.graph, region) || !size || *size < 2 || *size % 2) return std::nullopt;
  auto h = static_cast<size_t>(*size);
  NormProbe norm(probe, region, h);
  auto large = norm.alternating(1e3f), negated = norm.alternating(-1e3f);
  constexpr float c = 1e-3f;
  auto small = norm.alternating(c);
  if (!large || !negated || !small) return std::nullopt;
  // On +-c the mean is 0 and both norms give +-1: y = +-w + b.
  std::vector<float> weight(h), bias(h);
  double offset = 0;
  size_t best = 0;
  for (size_t i = 0; i < h; ++i) {
    weight[i] = ((*large)[i] - (*negated)[i]) / (i % 2 ? -2.0f : 2.0f);
    bias[i] = ((*large)[i] + (*negated)[i]) / 2;
    offset = std::max<double>(offset, std::fabs(bias[i]));
    if (std::fabs(weight[i]) > std::fabs(weight[best])) best = i;
  }
  if (weight[best] == 0) return std::nullopt;
  auto epsilon = epsilon_of(std::fabs(((*small)[best] - bias[best]) / weight[best]), c);
  if (!epsilon) return std::nullopt;
  bool rms = offset < 1e-6 && norm.equals(weight, bias, *epsilon, false);
  if (!rms && !norm.equals(weight, bias, *epsilon, true)) return std::nullopt;
  Node out;
  out.op = rms ? "RMSNormalization" : "LayerNormalization";
  out.inputs = {region.entry, vector_value(probe.graph, region, weight)};
  if (!rms) out.inputs.push_back(vector_value(probe.graph, region, bias));
  out.outputs = {region.output};
  out.attributes.set("axis", int64_t{-1});
  out.attributes.set("epsilon", *epsilon);
  return out;
}

}  // namespace plait
