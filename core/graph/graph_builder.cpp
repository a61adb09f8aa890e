#include "core/graph/graph_builder.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/packed_list.h"
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

std::vector<ValueId> GraphBuilder::add_with_bodies(std::string_view op, std::vector<ValueId> inputs, size_t count,
                                                   Bodies bodies, Attributes attributes) {
  Node& node = graph_.add_node(std::string(op), std::move(inputs), static_cast<int>(count), std::move(attributes));
  node.bodies = std::move(bodies);
  node.name = name_;
  node.stage = stage_;
  infer_node(ops_, graph_, node, knowledge_);
  return node.outputs;
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
  if (!follow_from_inputs(graph_, dims)) {
    std::vector<ValueId> each;
    for (const Dim& dim : dims) each.push_back(made_size(dim));
    return each.size() == 1 ? each[0] : add("Concat", std::move(each), integer_attribute("axis", 0));
  }
  std::vector<std::string> texts;
  for (const Dim& dim : dims) texts.push_back(dim.text(graph_.symbols));
  Attributes attributes;
  attributes.set("sizes", std::move(texts));
  const ValueId out = add("plait.Sizes", {}, std::move(attributes));
  knowledge_.contents[static_cast<size_t>(out)] = dims;
  return out;
}

ValueId GraphBuilder::sizes(ValueId like) {
  return type(like).dims && follow_from_inputs(graph_, dims(like)) ? sizes(dims(like)) : add("Shape", {like});
}

ValueId GraphBuilder::made_size(const Dim& size) {
  if (follow_from_inputs(graph_, {size})) return sizes(Dims{size});
  ValueId sum = no_value;
  for (const Dim::Term& term : size.terms()) {
    ValueId product = integers({term.coefficient});
    for (const SymbolId symbol : term.symbols) product = times(product, size_of_symbol(symbol));
    sum = sum == no_value ? product : plus(sum, product);
  }
  return sum;
}

ValueId GraphBuilder::size_of_symbol(SymbolId symbol) {
  const Dim size = Dim::symbol(symbol);
  if (follow_from_inputs(graph_, {size})) return sizes(Dims{size});
  for (size_t i = graph_.nodes.size(); i-- > 0;)
    for (const ValueId id : graph_.nodes[i].outputs) {
      if (id == no_value || !graph_.value(id).type.dims) continue;
      const Dims& dims = *graph_.value(id).type.dims;
      const auto at = std::ranges::find(dims, size);
      if (at == dims.end()) continue;
      Attributes range = integer_attribute("start", at - dims.begin());
      range.set("end", at - dims.begin() + 1);
      return add("Shape", {id}, std::move(range));
    }
  throw Error(Code::unsupported, cat("a size is known only when it runs: ", size.text(graph_.symbols)));
}

ValueId GraphBuilder::zeros(ValueId like) {
  if (is_list(like))
    return list_of({like},
                   [](GraphBuilder& body, const std::vector<ValueId>& parts) { return body.zeros(parts[0]); });
  return expanded(number(0, like), like);
}

ValueId GraphBuilder::plus(ValueId a, ValueId b) {
  if (!is_list(a)) return add("Add", {a, b});
  return list_of({a, b}, [](GraphBuilder& body, const std::vector<ValueId>& parts) {
    return body.add("Add", {parts[0], parts[1]});
  });
}

ValueId GraphBuilder::empty_list(DType dtype) {
  const ValueId out = graph_.add_constant(packed_list(dtype, {}));
  graph_.value(out).kind = ValueKind::sequence;
  graph_.value(out).type.parts.what = PartDims::What::none;
  return out;
}

ValueId GraphBuilder::over_parts(const std::vector<ValueId>& lists, const OfParts& make, bool stacks) {
  auto body = std::make_shared<Graph>();
  auto list = [&](DType dtype) {
    const ValueId id = body->add_value({}, {dtype, Dims{Dim::symbol(body->symbols.fresh("list"))}});
    body->value(id).kind = ValueKind::sequence;
    return id;
  };
  const ValueId part = body->add_value({}, {DType::i64, Dims{}}), go = body->add_value({}, {DType::boolean, Dims{}});
  body->inputs = {part, go};
  const ValueId made = stacks ? no_value : list(type(lists[0]).dtype);
  if (!stacks) body->inputs.push_back(made);
  Knowledge knowledge;
  GraphBuilder inside(ops_, *body, knowledge, name_, stage_);
  std::vector<ValueId> parts;
  for (const ValueId one : lists) {
    if (graph_.value(one).kind == ValueKind::optional_sequence)
      throw Error(Code::unsupported, "the parts of an optional sequence are not known here");
    body->inputs.push_back(list(type(one).dtype));
    parts.push_back(inside.add("SequenceAt", {body->inputs.back(), part}));
  }
  const ValueId out = make(inside, parts);
  body->outputs = {go, stacks ? out : inside.add("SequenceInsert", {made, out})};
  std::vector<ValueId> inputs{add("SequenceLength", {lists[0]}), no_value};
  if (!stacks) inputs.push_back(empty_list(type(lists[0]).dtype));
  inputs.insert(inputs.end(), lists.begin(), lists.end());
  const ValueId result = add_with_bodies("Loop", std::move(inputs), 1, {{"body", std::move(body)}},
                                         integer_attribute("carried", stacks ? 0 : 1))[0];
  if (!stacks) graph_.value(result).kind = ValueKind::sequence;
  return result;
}

ValueId GraphBuilder::list_of(const std::vector<ValueId>& lists, const OfParts& make) {
  return over_parts(lists, make, false);
}

ValueId GraphBuilder::stack_of(const std::vector<ValueId>& lists, const OfParts& make) {
  return over_parts(lists, make, true);
}

ValueId GraphBuilder::sum(ValueId a, std::vector<int64_t> axes) {
  if (axes.empty()) return a;
  return add("ReduceSum", {a, integers(std::move(axes))}, integer_attribute("keepdims", 1));
}

ValueId GraphBuilder::reshaped(ValueId a, const Dims& to) {
  if (dims(a) == to) return a;
  // One size that is known only when it runs follows from the others.
  Dims target = to;
  auto is_open = [&](const Dim& dim) { return !follow_from_inputs(graph_, {dim}); };
  if (std::ranges::count_if(target, is_open) == 1) *std::ranges::find_if(target, is_open) = Dim(-1);
  return add("Reshape", {a, sizes(target)}, integer_attribute("allowzero", 1));
}

ValueId GraphBuilder::reshaped(ValueId a, ValueId like) {
  if (type(like).dims && type(a).dims && dims(a) == dims(like)) return a;
  return add("Reshape", {a, sizes(like)}, integer_attribute("allowzero", 1));
}

ValueId GraphBuilder::expanded(ValueId a, ValueId like) {
  if (type(like).dims && dims(a) == dims(like)) return a;
  return add("Expand", {a, sizes(like)});
}

ValueId GraphBuilder::cast(ValueId a, ValueId like) {
  const DType to = type(like).dtype;
  if (type(a).dtype == to) return a;
  return add("Cast", {a}, integer_attribute("to", static_cast<int64_t>(to)));
}

ValueId GraphBuilder::summed_to(ValueId a, ValueId like) {
  if (!type(a).dims || !type(like).dims) return summed_by_shape(a, like);
  const Dims from = dims(a), to = dims(like);
  const size_t in_front = from.size() - std::min(from.size(), to.size());
  std::vector<int64_t> axes(in_front);
  std::iota(axes.begin(), axes.end(), 0);
  for (size_t i = in_front; i < from.size(); ++i)
    if (to[i - in_front] == Dim(1) && from[i] != Dim(1)) axes.push_back(static_cast<int64_t>(i));
  return reshaped(sum(a, std::move(axes)), like);
}

ValueId GraphBuilder::summed_by_shape(ValueId a, ValueId like) {
  const ValueId from = add("Shape", {a}), to = sizes(like);
  const ValueId ones = add("ConstantOfShape", {minus(add("Shape", {from}), add("Shape", {to}))}, [] {
    Attributes one;
    one.set("value", Tensor::of_ints(std::vector<int64_t>{1}));
    return one;
  }());
  const ValueId padded = add("Concat", {ones, to}, integer_attribute("axis", 0));
  const ValueId axes = add("Reshape", {add("NonZero", {add("Not", {add("Equal", {from, padded})})}), integers({-1})});
  Attributes attributes = integer_attribute("keepdims", 1);
  attributes.set("noop_with_empty_axes", int64_t{1});
  return reshaped(add("ReduceSum", {a, axes}, std::move(attributes)), like);
}

}  // namespace plait
