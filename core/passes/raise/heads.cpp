// Raise, heads: traces keys and values of an attention to their source. Between cache and product there are
// transposes, reshapes, repetitions and scales in any form; their combined effect is found by evaluating them on
// elements that encode their own index.
#include <algorithm>
#include <cmath>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// Ops that permute or repeat elements, optionally scaled by one factor.
bool moves_elements(const Graph& graph, const Node& node) {
  static constexpr std::string_view moves[] = {"Transpose", "Reshape", "Squeeze", "Unsqueeze",
                                               "Expand",    "Flatten", "Cast",    "Slice"};
  if (std::find(std::begin(moves), std::end(moves), node.op) != std::end(moves)) return true;
  if (node.op != "Mul" && node.op != "Div") return false;
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return graph.value(id).constant && graph.value(id).constant->shape().elements() == 1;
  });
}

/// The node's only operand that depends on data; no_value if there are several.
ValueId data_operand(const Node& node, const std::vector<bool>& data) {
  ValueId found = no_value;
  for (ValueId id : node.inputs) {
    if (id == no_value || !data[static_cast<size_t>(id)]) continue;
    if (found != no_value && found != id) return no_value;
    found = id;
  }
  return found;
}

/// Base of index digits, exact in bf16.
constexpr int64_t base = 32;

class Tracer {
 public:
  Tracer(const Graph& graph, const PassContext& context, const HeadOperand& operand)
      : graph_(graph), context_(context), operand_(operand) {
    bool cached = !context.decoder.interface.caches.empty();
    probe_ = cached ? Probe{3, 2} : Probe{0, 5};
  }

  /// The same for new tokens that the graph writes into a buffer after its contents: into one that they fill, and
  /// into a ring that was full.
  bool is_written_from(ValueId from, const DecoderInterface::Cache& cache) {
    buffer_ = cache.past;
    constexpr int64_t tokens = 2;
    if (cache.length && cache.length <= tokens) return false;
    if (cache.length) probe_ = {cache.length - tokens, tokens}, length_ = cache.length;
    if (!is_written(from)) return false;
    if (!cache.ring) return true;
    probe_ = {2 * cache.length - 1, tokens};  // one at the end, one at the beginning
    return is_written(from);
  }

  /// For the current probe.
  bool is_written(ValueId from) {
    first_ = keys() - probe_.tokens;
    buffer_fill_ = 0;
    if (!comes_from(from)) return false;
    try {
      auto shape = shape_at(graph_, context_, from, probe_);
      buffer_fill_ = 1;
      std::vector<float> kept = run(from, *shape, std::vector<float>(static_cast<size_t>(shape->elements())));
      for (int64_t i = 0; i < operand_.heads; ++i)
        for (int64_t t = 0; t < keys(); ++t)
          for (int64_t k = 0; k < operand_.size; ++k)
            if (std::fabs(kept[index(i, t, k)] - (t < first_ ? factor_ : 0)) > 1e-6) return false;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;
    }
    return true;
  }

  /// Whether every element of the operand is `factor` times that of `from` at head_stride * (head / repeats) +
  /// token_stride * token + d_stride * d, and all elements of `from` occur.
  bool comes_from(ValueId from) {
    auto shape = shape_at(graph_, context_, from, probe_), to = shape_at(graph_, context_, operand_.value, probe_);
    int64_t all = keys(), tokens = all - first_, h = operand_.heads, d = operand_.size;
    if (!shape || !to || to->elements() != h * all * d || shape->elements() < 1) return false;
    try {
      if (!measure(from, *shape)) return false;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;  // the nodes between cannot be evaluated
    }
    if (place(0, 0, 0) != 0) return false;
    repeats_ = 1;
    while (repeats_ < h && place(repeats_, 0, 0) == 0) ++repeats_;
    if (h % repeats_) return false;
    head_stride = repeats_ < h ? place(repeats_, 0, 0) : 0;
    token_stride = place(0, 1, 0);
    d_stride = d > 1 ? place(0, 0, 1) : 0;
    if (shape->elements() != h / repeats_ * tokens * d) return false;
    for (int64_t i = 0; i < h; ++i)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t k = 0; k < d; ++k)
          if (place(i, t, k) != i / repeats_ * head_stride + t * token_stride + k * d_stride) return false;
    return true;
  }

  int64_t heads() const { return operand_.heads / repeats_; }
  double factor() const { return factor_; }
  const Probe& probe() const { return probe_; }

  /// h, s and d in memory order.
  std::string order() const {
    // A single head or element has no stride: it is put where it makes no difference.
    std::vector<std::pair<int64_t, char>> axes;
    int64_t single_head = std::max(token_stride, d_stride) + (token_stride > d_stride ? -1 : 1);
    axes.emplace_back(head_stride ? head_stride : single_head, 'h');
    axes.emplace_back(token_stride, 's');
    axes.emplace_back(d_stride, 'd');
    std::sort(axes.begin(), axes.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string out;
    for (const auto& [stride, name] : axes) out += name;
    return out;
  }

  int64_t head_stride = 0, token_stride = 0, d_stride = 0;

 private:
  std::vector<float> run(ValueId from, const Shape& shape, const std::vector<float>& elements) const {
    Evaluator evaluator = evaluator_at(graph_, context_, probe_);
    Tensor f32 = Tensor::of<float>(DType::f32, shape, elements);
    evaluator.bind(from, materialize({{}, f32, {{RecipeStep::Kind::cast, {}, graph_.value(from).type.dtype}}}));
    if (buffer_ != no_value) {
      Shape held = *shape_at(graph_, context_, buffer_, probe_);
      std::vector<float> same(static_cast<size_t>(held.elements()), buffer_fill_);
      Tensor tensor = Tensor::of<float>(DType::f32, held, same);
      evaluator.bind(buffer_,
                     materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, graph_.value(buffer_).type.dtype}}}));
    }
    Tensor out = materialize({{}, evaluator.value(operand_.value), {{RecipeStep::Kind::cast, {}, DType::f32}}});
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

  /// Sets places_ and factor_.
  bool measure(ValueId from, const Shape& shape) {
    auto count = static_cast<size_t>(shape.elements());
    std::vector<float> elements(count, 1), ones = run(from, shape, elements);
    factor_ = ones.empty() ? 0 : double{ones.back()};
    if (!(std::fabs(factor_) > 1e-6)) return false;
    for (int64_t i = 0; i < operand_.heads; ++i)
      for (int64_t t = 0; t < keys(); ++t)
        for (int64_t k = 0; k < operand_.size; ++k)
          if (std::fabs(ones[index(i, t, k)] - (t < first_ ? 0 : factor_)) > 1e-6 * std::fabs(factor_)) return false;
    places_.assign(ones.size(), 0);
    for (int64_t unit = 1; unit < shape.elements() || unit == 1; unit *= base) {
      for (size_t i = 0; i < count; ++i) elements[i] = static_cast<float>(static_cast<int64_t>(i) / unit % base);
      std::vector<float> digits = run(from, shape, elements);
      for (size_t i = 0; i < digits.size(); ++i)
        places_[i] += unit * static_cast<int64_t>(std::lround(digits[i] / factor_));
    }
    return true;
  }

  /// Source index of element (head, token, d) of the operand; tokens count from the first in `from`.
  int64_t place(int64_t head, int64_t token, int64_t d) const { return places_[index(head, first_ + token, d)]; }

  /// Number of keys of the operand.
  int64_t keys() const { return length_ ? length_ : probe_.past + probe_.tokens; }

  /// `token` counts from the oldest, which in a ring follows the newest.
  size_t index(int64_t head, int64_t token, int64_t d) const {
    int64_t at = 0, place = (probe_.past + probe_.tokens - keys() + token) % keys();
    for (char axis : operand_.order) {
      int64_t size = axis == 'h' ? operand_.heads : axis == 's' ? keys() : operand_.size;
      at = at * size + (axis == 'h' ? head : axis == 's' ? place : d);
    }
    return static_cast<size_t>(at);
  }

  const Graph& graph_;
  const PassContext& context_;
  const HeadOperand& operand_;
  Probe probe_;
  std::vector<int64_t> places_;
  int64_t repeats_ = 1, first_ = 0;
  double factor_ = 1;
  ValueId buffer_ = no_value;
  int64_t length_ = 0;  ///< of the buffer, if the file specifies it
  float buffer_fill_ = 0;
};

/// Stride of `axis` in elements.
int64_t stride_of(const Shape& shape, int64_t axis) {
  return shape.elements(static_cast<int>(axis) + 1, shape.rank());
}

}  // namespace

std::optional<Shape> shape_at(const Graph& graph, const PassContext& context, ValueId id, const Probe& probe) {
  const DecoderInterface& interface = context.decoder.interface;
  std::vector<int64_t> symbols(static_cast<size_t>(graph.symbols.size()), -1);
  symbols[static_cast<size_t>(interface.batch)] = 1;
  symbols[static_cast<size_t>(interface.sequence)] = probe.tokens;
  symbols[static_cast<size_t>(interface.past)] = probe.past + (interface.fixed_buffers ? probe.tokens : 0);
  const auto& dims = graph.value(id).type.dims;
  if (!dims) return std::nullopt;
  Shape shape;
  for (const Dim& dim : *dims) {
    for (SymbolId symbol : dim.symbols())
      if (symbols[static_cast<size_t>(symbol)] < 0) return std::nullopt;
    shape.push_back(dim.evaluate(symbols));
  }
  return shape;
}

int cache_of(const Graph& graph, const DecoderInterface& interface, const std::vector<int32_t>& producer,
             ValueId id) {
  while (id != no_value) {
    for (size_t i = 0; i < interface.caches.size(); ++i)
      if (interface.caches[i].past == id) return static_cast<int>(i);
    int32_t maker = producer[static_cast<size_t>(id)];
    if (maker < 0) return -1;
    const Node& node = graph.nodes[static_cast<size_t>(maker)];
    bool part = node.op == "Slice" || node.op == "Split" || node.op == "Gather";  // keys and values in one input
    if (!part && !moves_elements(graph, node)) return -1;
    id = node.inputs[0];
  }
  return -1;
}

std::optional<HeadSource> trace_heads(const Graph& graph, const PassContext& context,
                                      const std::vector<int32_t>& producer, const std::vector<bool>& data,
                                      const HeadOperand& operand, std::string& why) {
  const DecoderInterface& interface = context.decoder.interface;
  std::vector<ValueId> chain{operand.value};
  const Node* join = nullptr;
  for (;;) {
    int32_t maker = producer[static_cast<size_t>(chain.back())];
    if (maker < 0) break;
    const Node& node = graph.nodes[static_cast<size_t>(maker)];
    if (node.op == "Concat" && node.inputs.size() == 2 && cache_of(graph, interface, producer, node.inputs[0]) >= 0) {
      join = &node;
      break;
    }
    bool writes = node.op == "TensorScatter" || node.op == "ScatterND" || node.op == "ScatterElements";
    if (writes && interface.fixed_buffers && cache_of(graph, interface, producer, node.inputs[0]) >= 0) {
      int cache = cache_of(graph, interface, producer, node.inputs[0]);
      ValueId fresh = node.inputs[node.op == "TensorScatter" ? 1 : 2];
      Tracer tracer(graph, context, operand);
      if (tracer.is_written_from(fresh, interface.caches[static_cast<size_t>(cache)]))
        return HeadSource{{fresh, tracer.order()}, cache, tracer.heads(), tracer.factor()};
      why = cat(describe(node), " does not write the new tokens after those in the cache");
      return std::nullopt;
    }
    ValueId before = moves_elements(graph, node) ? data_operand(node, data) : no_value;
    if (before == no_value) break;
    chain.push_back(before);
  }
  Tracer tracer(graph, context, operand);
  if (join) {
    ValueId whole = join->outputs[0];
    if (!tracer.comes_from(whole)) {
      why = cat(describe(*join), ": what follows the cache is no order of heads, tokens and elements");
      return std::nullopt;
    }
    auto shape = shape_at(graph, context, whole, tracer.probe());
    int64_t axis = join->attributes.integer("axis", 0);
    if (axis < 0) axis += shape->rank();
    auto past = shape_at(graph, context, join->inputs[0], tracer.probe());
    bool along = past && stride_of(*shape, axis) == tracer.token_stride &&
                 (*past)[static_cast<int>(axis)] == tracer.probe().past &&
                 (*shape)[static_cast<int>(axis)] == tracer.probe().past + tracer.probe().tokens;
    if (!along) {
      why = cat(describe(*join), " joins the cache along another axis than the tokens");
      return std::nullopt;
    }
    int cache = cache_of(graph, interface, producer, join->inputs[0]);
    return HeadSource{{join->inputs[1], tracer.order()}, cache, tracer.heads(), tracer.factor()};
  }
  // No cache: the source is the earliest value of which the operand is a permutation; repetitions and scales are
  // stripped.
  for (auto value = chain.rbegin(); value != chain.rend(); ++value)
    if (tracer.comes_from(*value)) return HeadSource{{*value, tracer.order()}, -1, tracer.heads(), tracer.factor()};
  why = cat("value ", quote(graph.value(operand.value).name), " is no order of heads, tokens and elements");
  return std::nullopt;
}

}  // namespace plait
