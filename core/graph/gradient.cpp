#include "core/graph/gradient.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

bool is_constant(const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(), [](const Dim& dim) { return dim.is_constant(); });
}

Attributes integer_attribute(std::string_view name, int64_t value) {
  Attributes out;
  out.set(std::string(name), value);
  return out;
}

}  // namespace

GradientContext::GradientContext(const OpSet& ops, Graph& graph, Node node, std::vector<bool> wanted,
                                 std::vector<ValueId> gradients, Knowledge& knowledge)
    : ops_(ops),
      graph_(graph),
      node_(std::move(node)),
      wanted_(std::move(wanted)),
      gradients_(std::move(gradients)),
      knowledge_(knowledge) {}

void GradientContext::give(size_t k, ValueId gradient) {
  if (!wants(k) || gradient == no_value) return;
  const Type value = type(input(k)), own = type(gradient);
  PLAIT_ASSERT(value.dtype == own.dtype && own.dims && value.dims && own.dims->size() == value.dims->size());
  given_.emplace_back(k, gradient);
}

Dims GradientContext::dims(ValueId id) const {
  const std::optional<Dims>& dims = graph_.value(id).type.dims;
  if (!dims) fail("the rank of an operand is not known");
  return *dims;
}

std::optional<std::vector<int64_t>> GradientContext::constants(ValueId id) const {
  const Tensor* tensor = constant(id);
  if (!tensor || !is_integer(tensor->dtype())) return std::nullopt;
  return to_ints(tensor->view());
}

Attributes GradientContext::kept(std::initializer_list<std::string_view> names) const {
  Attributes out;
  for (std::string_view name : names)
    if (const Attribute* value = attributes().find(name)) out.set(std::string(name), *value);
  return out;
}

std::vector<ValueId> GradientContext::add_all(std::string_view op, std::vector<ValueId> inputs,
                                              const std::vector<bool>& made, Attributes attributes) {
  Node& node =
      graph_.add_node(std::string(op), std::move(inputs), static_cast<int>(made.size()), std::move(attributes));
  for (size_t k = 0; k < made.size(); ++k)
    if (!made[k]) node.outputs[k] = no_value;
  node.name = node_.name;
  node.stage = node_.stage;
  infer_node(ops_, graph_, node, knowledge_);
  return node.outputs;
}

ValueId GradientContext::add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return add_all(op, std::move(inputs), {true}, std::move(attributes))[0];
}

ValueId GradientContext::number(double value, ValueId like) {
  const auto rounded = static_cast<float>(value);
  auto add = [&](auto element) {
    return graph_.add_constant(Tensor::of<decltype(element)>(type(like).dtype, Shape(), {&element, 1}));
  };
  switch (type(like).dtype) {
    case DType::f64: return add(value);
    case DType::f32: return add(rounded);
    case DType::f16: return add(to_float16(rounded));
    case DType::bf16: return add(to_bfloat16(rounded));
    default: fail(cat("a gradient of dtype ", dtype_name(type(like).dtype)));
  }
}

ValueId GradientContext::integers(std::vector<int64_t> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return graph_.add_constant(Tensor::of<int64_t>(DType::i64, shape, values));
}

ValueId GradientContext::sizes(const Dims& dims) {
  if (is_constant(dims)) {
    std::vector<int64_t> values;
    for (const Dim& dim : dims) values.push_back(dim.constant());
    return integers(std::move(values));
  }
  std::vector<std::string> texts;
  for (const Dim& dim : dims) texts.push_back(dim.text(graph_.symbols));
  Attributes attributes;
  attributes.set("sizes", std::move(texts));
  const ValueId out = add("plait.Sizes", {}, std::move(attributes));
  knowledge_.contents[static_cast<size_t>(out)] = dims;
  return out;
}

ValueId GradientContext::count(const Dim& size, ValueId like) {
  if (size.is_constant()) return number(static_cast<double>(size.constant()), like);
  return cast(reshaped(sizes(Dims{size}), Dims{}), like);
}

ValueId GradientContext::sizes(ValueId like) { return sizes(dims(like)); }

ValueId GradientContext::zeros(ValueId like) { return expanded(number(0, like), like); }

ValueId GradientContext::sum(ValueId a, std::vector<int64_t> axes) {
  if (axes.empty()) return a;
  return add("ReduceSum", {a, integers(std::move(axes))}, integer_attribute("keepdims", 1));
}

ValueId GradientContext::reshaped(ValueId a, const Dims& to) {
  if (dims(a) == to) return a;
  return add("Reshape", {a, sizes(to)}, integer_attribute("allowzero", 1));
}

ValueId GradientContext::expanded(ValueId a, ValueId like) {
  if (dims(a) == dims(like)) return a;
  return add("Expand", {a, sizes(like)});
}

ValueId GradientContext::cast(ValueId a, ValueId like) {
  const DType to = type(like).dtype;
  if (type(a).dtype == to) return a;
  return add("Cast", {a}, integer_attribute("to", static_cast<int64_t>(to)));
}

ValueId GradientContext::summed_to(ValueId a, ValueId like) {
  const Dims from = dims(a), to = dims(like);
  const size_t in_front = from.size() - std::min(from.size(), to.size());
  std::vector<int64_t> axes(in_front);
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = in_front; i < from.size(); ++i)
    if (to[i - in_front] == Dim(1) && from[i] != Dim(1)) axes.push_back(static_cast<int64_t>(i));
  return reshaped(sum(a, std::move(axes)), like);
}

void GradientContext::fail(std::string message, std::string hint) {
  throw Error(Code::unsupported, std::move(message), std::move(hint));
}

void no_gradient(GradientContext&) {}

namespace {

/// The walk itself: per value what has been found of its gradient so far.
class Walk {
 public:
  Walk(const OpSet& ops, Graph& graph) : ops_(ops), graph_(graph), nodes_(graph.nodes.size()) {
    sums_.resize(static_cast<size_t>(graph.value_count()), no_value);
  }

  std::vector<ValueId> run(std::span<const GradientSeed> seeds, std::span<const ValueId> wanted) {
    for (const GradientSeed& seed : seeds) add(seed.value, seed.gradient);
    mark(wanted);
    for (size_t i = nodes_; i-- > 0;) visit(i);
    std::vector<ValueId> out;
    for (ValueId id : wanted) out.push_back(sums_[static_cast<size_t>(id)]);
    return out;
  }

 private:
  void add(ValueId value, ValueId gradient) {
    ValueId& sum = sums_[static_cast<size_t>(value)];
    if (sum == no_value) {
      sum = gradient;
      return;
    }
    Node& node = graph_.add_node("Add", {sum, gradient});
    infer_node(ops_, graph_, node, knowledge_);
    sum = node.outputs[0];
  }

  /// What depends on a wanted value, as far as numbers that vary smoothly carry it.
  void mark(std::span<const ValueId> wanted) {
    depends_.resize(sums_.size());
    for (ValueId id : wanted) depends_[static_cast<size_t>(id)] = true;
    for (size_t i = 0; i < nodes_; ++i) {
      const Node& node = graph_.nodes[i];
      if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return depends(id); })) continue;
      for (ValueId id : node.outputs)
        if (id != no_value && is_float(graph_.value(id).type.dtype)) depends_[static_cast<size_t>(id)] = true;
    }
  }

  bool depends(ValueId id) const { return id != no_value && depends_[static_cast<size_t>(id)]; }

  void visit(size_t index) {
    const Node node = graph_.nodes[index];
    std::vector<ValueId> gradients;
    for (ValueId id : node.outputs) gradients.push_back(id == no_value ? no_value : sums_[static_cast<size_t>(id)]);
    std::vector<bool> wanted;
    for (ValueId id : node.inputs) wanted.push_back(depends(id));
    auto any = [](const auto& list, auto nothing) {
      return std::any_of(list.begin(), list.end(), [&](auto one) { return one != nothing; });
    };
    if (!any(gradients, no_value) || !any(wanted, false)) return;
    const OpSchema* schema = ops_.find(node.op);
    if (!schema || !schema->gradient)
      throw Error(Code::unsupported,
                  cat(describe(graph_, node), " has no gradient, and lies between the loss and what is trained"),
                  "`plait ops` says which ops have one; train only what comes behind this node, or adapters there");
    GradientContext context(ops_, graph_, node, std::move(wanted), std::move(gradients), knowledge_);
    try {
      schema->gradient(context);
    } catch (const Error& error) {
      throw error.at(cat("the gradient of ", describe(node)));
    }
    for (const auto& [k, gradient] : context.given()) add(node.inputs[k], gradient);
  }

  const OpSet& ops_;
  Graph& graph_;
  const size_t nodes_;  ///< those that were there before
  Knowledge knowledge_;
  std::vector<ValueId> sums_;
  std::vector<bool> depends_;
};

}  // namespace

std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted) {
  return Walk(ops, graph).run(seeds, wanted);
}

}  // namespace plait
