#include "core/passes/base/evaluate.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"

namespace plait {

Dims sizes_of(const Node& node, SymbolTable& symbols) {
  const Attribute* found = node.attributes.find("sizes");
  PLAIT_ASSERT(found && std::holds_alternative<std::vector<std::string>>(*found));
  Dims out;
  for (const std::string& one : std::get<std::vector<std::string>>(*found)) out.push_back(Dim::parse(one, symbols));
  return out;
}

void make_sizes(Node& node, std::span<const Dim> elements, bool scalar, const SymbolTable& symbols) {
  std::vector<std::string> texts;
  for (const Dim& dim : elements) texts.push_back(dim.text(symbols));
  node.op = "plait.Sizes";
  node.inputs.clear();
  node.bodies.clear();
  node.attributes = {};
  node.attributes.set("sizes", std::move(texts));
  if (scalar) node.attributes.set("scalar", int64_t{1});
}

static Tensor evaluate_sizes(const Graph& graph, const Node& node, std::span<const int64_t> values) {
  SymbolTable symbols = graph.symbols;
  std::vector<int64_t> out;
  for (const Dim& dim : sizes_of(node, symbols)) {
    for (SymbolId id : dim.symbols())
      if (static_cast<size_t>(id) >= values.size() || values[static_cast<size_t>(id)] < 0)
        throw Error(Code::invalid_argument, cat("size ", symbols[id].name, " is not known here"));
    out.push_back(dim.evaluate(values));
  }
  return node.attributes.has("scalar") ? Tensor::of_ints(out).reshaped({}) : Tensor::of_ints(out);
}

/// An estimate for the budget. Few elements are not worth asking the rule about their products.
static int64_t steps_of(const OpSchema& schema, const Node& node, std::span<const TensorView> inputs,
                        const std::vector<std::pair<DType, Shape>>& outputs) {
  constexpr int64_t few = 1 << 12;
  int64_t steps = 0;
  std::vector<Type> types[2];
  auto add = [&](int which, DType dtype, const Shape& shape) {
    Type type{dtype, std::nullopt};
    if (dtype != DType::none) type.dims = Dims(shape.begin(), shape.end()), steps += shape.elements();
    types[which].push_back(std::move(type));
  };
  for (const TensorView& input : inputs) add(0, input.dtype, input.shape);
  for (const auto& [dtype, shape] : outputs) add(1, dtype, shape);
  if (steps <= few) return steps;
  auto rule = rule_of(schema, node, types[0], types[1]);
  if (!rule) return steps;
  const Dim products = flops(*rule, factor_sizes(*rule, dims_list(types[0]), dims_list(types[1])));
  return products.is_constant() ? std::max(steps, products.constant()) : steps;
}

std::vector<Tensor> evaluate_node(const PassContext& context, const Graph& graph, const Node& node,
                                  std::span<const Tensor> inputs, std::span<const int64_t> symbols, int64_t budget) {
  if (node.op == "plait.Sizes") return {evaluate_sizes(graph, node, symbols)};
  const OpSchema& schema = check_node(context.options.ops, node);
  std::vector<TensorView> views, out_views;
  std::vector<OperandInfo> in_info, out_info;
  const auto refuse_strings = [&](DType dtype) {
    if (dtype == DType::string) throw Error(Code::unsupported, cat(describe(node), ": strings have numbers in runs only"));
  };
  for (const Tensor& input : inputs) {
    refuse_strings(input.dtype());
    views.push_back(input.view());
    in_info.push_back({input.dtype(), input.shape().rank(), true});
  }
  std::vector<std::pair<DType, Shape>> types;
  infer_concrete(schema, node, views, types, [&](int output) {
    const NodeInfo info{node.op, node.attributes, in_info, {}};
    const Kernel* kernel = context.options.kernels.reference(info);
    if (!kernel || !kernel->output_shape)
      throw Error(Code::bad_model, cat("its operands do not tell the sizes of output ", output));
    return kernel->output_shape(kernel->prepare ? kernel->prepare(info).get() : nullptr, views, output);
  });
  std::vector<Tensor> outputs(node.outputs.size());
  std::vector<size_t> made;
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (node.outputs[k] == no_value) {
      out_info.push_back({});
      out_views.push_back({});
      continue;
    }
    const auto& [dtype, shape] = types[k];
    refuse_strings(dtype);
    int64_t elements = checked_elements({shape.begin(), shape.end()}, dtype_bits(dtype));
    if (packed_bytes(elements, dtype_bits(dtype)) > budget)
      throw Error(Code::unsupported,
                  cat(describe(node), " would need ", human_bytes(packed_bytes(elements, dtype_bits(dtype)))));
    made.push_back(k);
    out_info.push_back({dtype, shape.rank(), false});
    out_views.push_back({});
  }
  context.budget->steps -= steps_of(schema, node, views, types);
  if (context.budget->steps < 0)
    throw Error(Code::unsupported,
                cat(describe(node), ": the graph needs too much computation at compile time"));
  for (size_t k : made) {
    outputs[k] = Tensor(types[k].first, types[k].second);
    out_views[k] = outputs[k].view();
  }
  NodeInfo info{node.op, node.attributes, in_info, out_info};
  const Kernel* kernel = context.options.kernels.reference(info);
  if (!kernel) throw Error(Code::unsupported, cat(describe(node), " has no kernel for these dtypes"));
  auto state = kernel->prepare ? kernel->prepare(info) : nullptr;
  ThreadPool alone(1);
  std::shared_ptr<Blob> scratch;
  std::span<std::byte> workspace;
  if (kernel->scratch_bytes) {
    scratch = make_blob(kernel->scratch_bytes(state.get(), views, out_views, 1));
    workspace = {scratch->mutable_data(), static_cast<size_t>(scratch->size())};
  }
  KernelStatus status = kernel->run({state.get(), views, out_views, alone, workspace});
  if (status.code != KernelCode::ok)
    throw Error(Code::bad_model,
                cat(describe(node), ": operand ", status.operand, " holds a value that the op refuses: ", status.value));
  return outputs;
}

Evaluator::Evaluator(const PassContext& context, const Graph& graph, int64_t budget)
    : context_(context),
      graph_(graph),
      budget_(budget),
      producer_(producers(graph)),
      symbols_(static_cast<size_t>(graph.symbols.size()), -1) {}

Tensor Evaluator::value(ValueId wanted) {
  std::vector<int32_t> needed;
  std::vector<ValueId> open{wanted};
  std::vector<bool> seen(graph_.nodes.size());
  while (!open.empty()) {
    ValueId id = open.back();
    open.pop_back();
    if (id == no_value || values_.count(id)) continue;
    if (const auto& constant = graph_.value(id).constant) {
      values_[id] = materialize(*constant);
      continue;
    }
    int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker < 0)
      throw Error(Code::invalid_argument, cat("value ", quote(graph_.value(id).name), " is needed but not bound"));
    if (seen[static_cast<size_t>(maker)]) continue;
    seen[static_cast<size_t>(maker)] = true;
    needed.push_back(maker);
    for (ValueId input : graph_.nodes[static_cast<size_t>(maker)].inputs) open.push_back(input);
  }
  std::sort(needed.begin(), needed.end());  // nodes are in topological order
  for (int32_t index : needed) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    std::vector<Tensor> inputs;
    for (ValueId id : node.inputs) inputs.push_back(id == no_value ? Tensor() : values_.at(id));
    auto outputs = evaluate_node(context_, graph_, node, inputs, symbols_, budget_);
    for (size_t k = 0; k < outputs.size(); ++k)
      if (node.outputs[k] != no_value) values_[node.outputs[k]] = std::move(outputs[k]);
  }
  return values_.at(wanted);
}

void substitute(Graph& graph, SymbolId symbol, const Dim& by) {
  auto renamed = [&](const Dim& dim) { return dim.substitute(symbol, by); };
  for (ValueId id = 0; id < graph.value_count(); ++id)
    if (auto& dims = graph.value(id).type.dims)
      for (Dim& dim : *dims) dim = renamed(dim);
  for (Node& node : graph.nodes) {
    if (node.op != "plait.Sizes") continue;
    Dims sizes = sizes_of(node, graph.symbols);
    for (Dim& dim : sizes) dim = renamed(dim);
    make_sizes(node, sizes, node.attributes.has("scalar"), graph.symbols);
  }
}

std::optional<double> scalar_of(const Graph& graph, ValueId id) {
  const auto& constant = graph.value(id).constant;
  if (!constant || constant->shape().elements() != 1) return std::nullopt;
  const Tensor wide = materialize({{}, materialize(*constant), {{RecipeStep::Kind::cast, {}, DType::f64}}});
  return *wide.as<double>();
}

}  // namespace plait
