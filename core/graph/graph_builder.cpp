#include "core/graph/graph_builder.h"

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

Dims GraphBuilder::dims(ValueId id) const {
  const std::optional<Dims>& dims = graph_.value(id).type.dims;
  if (!dims) throw Error(Code::unsupported, "the rank of an operand is not known");
  return *dims;
}

std::optional<std::vector<int64_t>> GraphBuilder::constants(ValueId id) const {
  const Tensor* tensor = constant(id);
  if (!tensor || !is_integer(tensor->dtype())) return std::nullopt;
  return to_ints(tensor->view());
}

ValueId GraphBuilder::count(const Dim& size, ValueId like) {
  if (size.is_constant()) return number(static_cast<double>(size.constant()), like);
  return cast(reshaped(sizes(Dims{size}), Dims{}), like);
}

std::vector<ValueId> GraphBuilder::add_all(std::string_view op, std::vector<ValueId> inputs,
                                           const std::vector<bool>& made, Attributes attributes) {
  Node& node =
      graph_.add_node(std::string(op), std::move(inputs), static_cast<int>(made.size()), std::move(attributes));
  for (size_t k = 0; k < made.size(); ++k)
    if (!made[k]) node.outputs[k] = no_value;
  node.name = name_;
  node.stage = stage_;
  infer_node(ops_, graph_, node, knowledge_);
  return node.outputs;
}

ValueId GraphBuilder::add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return add_all(op, std::move(inputs), {true}, std::move(attributes))[0];
}

ValueId GraphBuilder::number(double value, ValueId like) {
  const auto rounded = static_cast<float>(value);
  auto add = [&](auto element) {
    return graph_.add_constant(Tensor::of<decltype(element)>(type(like).dtype, Shape(), {&element, 1}));
  };
  switch (type(like).dtype) {
    case DType::f64: return add(value);
    case DType::f32: return add(rounded);
    case DType::f16: return add(to_float16(rounded));
    case DType::bf16: return add(to_bfloat16(rounded));
    default:
      throw Error(Code::unsupported, cat("numbers of dtype ", dtype_name(type(like).dtype), " are not made here"));
  }
}

ValueId GraphBuilder::integers(std::vector<int64_t> values) {
  const Shape shape{static_cast<int64_t>(values.size())};
  return graph_.add_constant(Tensor::of<int64_t>(DType::i64, shape, values));
}

ValueId GraphBuilder::sizes(const Dims& dims) {
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

ValueId GraphBuilder::sizes(ValueId like) { return sizes(dims(like)); }

ValueId GraphBuilder::zeros(ValueId like) { return expanded(number(0, like), like); }

ValueId GraphBuilder::sum(ValueId a, std::vector<int64_t> axes) {
  if (axes.empty()) return a;
  return add("ReduceSum", {a, integers(std::move(axes))}, integer_attribute("keepdims", 1));
}

ValueId GraphBuilder::reshaped(ValueId a, const Dims& to) {
  if (dims(a) == to) return a;
  return add("Reshape", {a, sizes(to)}, integer_attribute("allowzero", 1));
}

ValueId GraphBuilder::expanded(ValueId a, ValueId like) {
  if (dims(a) == dims(like)) return a;
  return add("Expand", {a, sizes(like)});
}

ValueId GraphBuilder::cast(ValueId a, ValueId like) {
  const DType to = type(like).dtype;
  if (type(a).dtype == to) return a;
  return add("Cast", {a}, integer_attribute("to", static_cast<int64_t>(to)));
}

ValueId GraphBuilder::summed_to(ValueId a, ValueId like) {
  const Dims from = dims(a), to = dims(like);
  const size_t in_front = from.size() - std::min(from.size(), to.size());
  std::vector<int64_t> axes(in_front);
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = in_front; i < from.size(); ++i)
    if (to[i - in_front] == Dim(1) && from[i] != Dim(1)) axes.push_back(static_cast<int64_t>(i));
  return reshaped(sum(a, std::move(axes)), like);
}

}  // namespace plait
