#include "core/graph/infer.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"

namespace plait {

namespace {

bool has_contents(const TensorView& tensor) {
  bool integer = is_integer(tensor.dtype) || tensor.dtype == DType::boolean;
  return integer && tensor.shape.rank() <= 1 && tensor.elements() <= max_contents;
}

Dims contents_of(const TensorView& tensor) {
  std::vector<int64_t> numbers = to_ints(tensor);
  return Dims(numbers.begin(), numbers.end());
}

/// Collects the results of a shape rule. Subclasses provide the operands' facts.
class Context final : public InferContext {
 public:
  explicit Context(const Node& node)
      : node_(node),
        inputs_(node.inputs.size()),
        facts_(node.inputs.size()),
        read_(node.inputs.size()),
        outputs_(node.outputs.size()),
        made_(node.outputs.size()) {}

  std::vector<Type>& input_types() { return inputs_; }
  std::vector<Type>& output_types() { return outputs_; }
  std::vector<std::optional<Dims>>& output_contents() { return made_; }
  const std::vector<Dim>& unknowns() const { return unknowns_; }
  /// The operands whose elements the rules asked for.
  const std::vector<bool>& read() const { return read_; }
  void set_constant(size_t input, const Tensor* tensor) { facts_[input].constant = tensor; }
  void set_known(size_t input, Dims elements) { facts_[input].contents = std::move(elements); }
  /// Unknown sizes become symbols of `table`; without one they are errors.
  void set_exact(bool exact) { exact_ = exact; }
  void set_sum_bound(const Knowledge::SumBound* bound) { bound_ = bound; }
  void name_unknowns(SymbolTable* table, std::string suffix) {
    table_ = table;
    suffix_ = std::move(suffix);
  }

  const Attributes& attributes() const override { return node_.attributes; }
  int inputs() const override { return static_cast<int>(inputs_.size()); }
  int outputs() const override { return static_cast<int>(outputs_.size()); }
  bool has(int i) const override { return i < inputs() && node_.inputs[at(i)] != no_value; }
  bool wants(int i) const override { return i < outputs() && node_.outputs[at(i)] != no_value; }
  DType dtype(int i) const override { return i < inputs() ? inputs_[at(i)].dtype : DType::none; }
  const Dims* dims(int i) const override {
    return i < inputs() && inputs_[at(i)].dims ? &*inputs_[at(i)].dims : nullptr;
  }
  const Dims* contents(int i) const override {
    if (!has(i)) return nullptr;
    read_[at(i)] = true;
    Facts& facts = facts_[at(i)];
    if (!facts.contents && facts.constant && has_contents(facts.constant->view()))
      facts.contents = contents_of(facts.constant->view());
    return facts.contents ? &*facts.contents : nullptr;
  }
  PartDims parts(int i) const override { return i < inputs() ? inputs_[at(i)].parts : PartDims(); }
  const Tensor* constant(int i) const override {
    if (i >= inputs()) return nullptr;
    read_[at(i)] = true;
    return facts_[at(i)].constant;
  }
  const Node& node() const override { return node_; }

  Dim unknown(std::string_view stem) override {
    if (!table_) throw Error(Code::bad_model, cat("the size ", quote(stem), " cannot be derived from the operands"));
    size_t count = unknowns_.size();
    std::string name = cat(stem, ".", suffix_, count ? cat(".", count) : std::string());
    unknowns_.push_back(Dim::symbol(table_->intern(name)));
    return unknowns_.back();
  }

  bool exact() const override { return exact_; }
  std::optional<int64_t> most(const Dim& size) const override {
    if (size.is_constant()) return size.constant();
    return bound_ ? bound_->of(size) : std::nullopt;
  }

  void set_type(int i, DType dtype) override {
    if (wants(i)) outputs_[at(i)].dtype = dtype;
  }
  void set_dims(int i, Dims dims) override {
    if (!wants(i)) return;
    if (dims.size() > static_cast<size_t>(Shape::max_rank))
      throw Error(Code::unsupported,
                  cat("output ", i, " has rank ", dims.size(), ", at most ", Shape::max_rank, " is possible"));
    for (const Dim& dim : dims)
      if (dim.is_constant() && dim.constant() < 0) fail(cat("output ", i, " would have a size of ", dim.constant()));
    outputs_[at(i)].dims = std::move(dims);
  }
  void set_contents(int i, Dims elements) override {
    if (wants(i) && static_cast<int64_t>(elements.size()) <= max_contents) made_[at(i)] = std::move(elements);
  }
  void set_parts(int i, PartDims parts) override {
    if (wants(i)) outputs_[at(i)].parts = std::move(parts);
  }

 private:
  struct Facts {
    const Tensor* constant = nullptr;
    std::optional<Dims> contents;
  };
  static size_t at(int i) { return static_cast<size_t>(i); }

  const Node& node_;
  std::vector<Type> inputs_;
  mutable std::vector<Facts> facts_;  ///< contents of constants are read on demand
  mutable std::vector<bool> read_;
  std::vector<Type> outputs_;
  std::vector<std::optional<Dims>> made_;
  std::vector<Dim> unknowns_;
  SymbolTable* table_ = nullptr;
  bool exact_ = false;
  const Knowledge::SumBound* bound_ = nullptr;
  std::string suffix_;
};

/// Plait's own ops do not broadcast: "..." has the same dims in each operand.
void check_same_rows(const DimsRule& written, const DimsList& operands, const OpSchema& schema) {
  std::optional<Dims> rows;
  for (size_t i = 0; i < written.operands.size(); ++i) {
    const std::vector<RuleDim>& dims = written.operands[i].dims;
    const auto place = std::find_if(dims.begin(), dims.end(), [](const RuleDim& dim) { return dim.ellipsis; });
    if (place == dims.end() || !operands[i] || operands[i]->size() + 1 < dims.size()) continue;
    const auto first = operands[i]->begin() + (place - dims.begin());
    const Dims own(first, first + static_cast<std::ptrdiff_t>(operands[i]->size() + 1 - dims.size()));
    if (!rows) rows = own;
    const bool same = rows->size() == own.size() && std::equal(own.begin(), own.end(), rows->begin(), [](auto& a, auto& b) {
                        return unify(a, b).has_value();
                      });
    if (!same)
      throw Error(Code::bad_model, cat(operand_label(&schema, i), " has other rows than the operands before: ", own.size(),
                                       " dimensions, expected ", rows->size(), " of the same sizes"));
  }
}

/// Runs the shape rule, then the dims rule for open sizes; the latter also checks the operands' sizes against each
/// other.
void run_rules(const OpSchema& schema, const Node& node, Context& context) {
  std::vector<Type>& outputs = context.output_types();
  check_ranks(schema, context.input_types());
  if (schema.infer) {
    schema.infer(context);
  } else {
    for (Type& output : outputs) output.dtype = context.dtype(0);
    context.set_parts(0, context.parts(0));  // Identity of a list
  }
  const std::optional<DimsRule> written = written_rule(schema, node, context.input_types(), outputs);
  if (!written) return;
  const DimsList operands = dims_list(context.input_types());
  if (schema.name.starts_with("plait.")) check_same_rows(*written, operands, schema);
  const DimsRule rule = expand(*written, operands);
  FactorSizes sizes = factor_sizes(rule, operands, dims_list(outputs), &schema);
  if (context.exact())
    for (const std::string& name : open_rows(*written, operands)) sizes[name] = context.unknown("broadcast");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dims || node.outputs[i] == no_value) continue;
    if (std::optional<Dims> dims = result_dims(rule, sizes, i)) context.set_dims(static_cast<int>(i), *dims);
  }
}

/// Whether a dtype can represent these elements. Sizes known only at run time fit i32 and i64; numbers must be in
/// range, since kernels wrap them.
bool holds(DType dtype, const Dims& elements) {
  if (!is_integer(dtype) && dtype != DType::boolean) return false;
  if (dtype == DType::i64) return true;
  const int bits = dtype == DType::boolean ? 1 : dtype_bits(dtype);
  const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32;
  const int64_t most = bits == 64 ? INT64_MAX : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  return std::all_of(elements.begin(), elements.end(), [&](const Dim& element) {
    if (!element.is_constant()) return dtype == DType::i32;
    return element.constant() <= most && element.constant() >= (is_signed ? -most - 1 : 0);
  });
}

/// The previous type (from the file or an earlier inference) fills in what is unknown now.
void write_type(Value& value, Type type, const std::vector<Dim>& unknowns) {
  if (type.dtype == DType::none) type.dtype = value.type.dtype;
  if (!type.dims) {
    type.dims = value.type.dims;
  } else if (value.type.dims && value.type.dims->size() == type.dims->size()) {
    for (size_t i = 0; i < type.dims->size(); ++i)
      if (std::find(unknowns.begin(), unknowns.end(), (*type.dims)[i]) != unknowns.end())
        (*type.dims)[i] = (*value.type.dims)[i];
  }
  if (!type.parts.known()) type.parts = value.type.parts;
  value.type = std::move(type);
}

void infer_plain(const OpSchema& schema, Graph& graph, const Node& node, Knowledge& knowledge) {
  Context context(node);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ValueId id = node.inputs[i];
    if (id == no_value) continue;
    context.input_types()[i] = graph.value(id).type;
    context.set_constant(i, graph.constant(id));
    auto at = static_cast<size_t>(id);
    if (at < knowledge.contents.size() && knowledge.contents[at]) context.set_known(i, *knowledge.contents[at]);
  }
  context.set_exact(knowledge.exact);
  context.set_sum_bound(knowledge.sum_bound ? &*knowledge.sum_bound : nullptr);
  context.name_unknowns(&graph.symbols, cat(knowledge.scope, node.outputs.empty() ? 0 : node.outputs[0]));
  run_rules(schema, node, context);
  knowledge.contents.resize(static_cast<size_t>(graph.value_count()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    ValueId id = node.outputs[i];
    if (id == no_value) continue;
    write_type(graph.value(id), std::move(context.output_types()[i]), context.unknowns());
    auto& made = context.output_contents()[i];
    if (made && holds(graph.value(id).type.dtype, *made)) knowledge.contents[static_cast<size_t>(id)] = std::move(made);
  }
}

std::vector<DType> dtypes_of(const Graph& graph, std::span<const ValueId> ids) {
  std::vector<DType> out;
  for (ValueId id : ids) out.push_back(id == no_value ? DType::none : graph.value(id).type.dtype);
  return out;
}

}  // namespace

PartDims merged(const PartDims& a, const PartDims& b) {
  if (!a.known() || !b.known()) return {};
  if (a.what == PartDims::What::none || b.what == PartDims::What::none) return a.what == PartDims::What::none ? b : a;
  if (a.dims.size() != b.dims.size()) return {};
  PartDims out = a;
  for (size_t axis = 0; axis < out.dims.size(); ++axis)
    if (out.dims[axis] != b.dims[axis]) out.dims[axis] = Dim(-1);
  return out;
}

/// Symbols are never negative, so the bound goes to the one of the sum that counts most.
std::optional<int64_t> Knowledge::SumBound::of(const Dim& size) const {
  int64_t constant = 0, greatest = 0;
  for (const Dim::Term& term : size.terms()) {
    if (term.symbols.empty()) {
      constant = term.coefficient;
    } else if (term.coefficient > 0) {
      const bool summed = term.symbols.size() == 1 && std::ranges::find(symbols, term.symbols[0]) != symbols.end();
      if (!summed) return std::nullopt;
      greatest = std::max(greatest, term.coefficient);
    }
  }
  const Dim bound = Dim(greatest) * Dim(most) + Dim(constant);  // saturates
  return bound.constant();
}

void infer_node(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge) {
  const OpSchema& schema = check_node(ops, node);
  try {
    check_types(schema, node, dtypes_of(graph, node.inputs), {});
    if (node.bodies.empty()) infer_plain(schema, graph, node, knowledge);
    else infer_with_bodies(ops, graph, node, knowledge);
    check_types(schema, node, dtypes_of(graph, node.inputs), dtypes_of(graph, node.outputs));
  } catch (const Error& error) {
    throw error.at(describe(graph, node));
  }
}

void infer_graph(const OpSet& ops, Graph& graph, Knowledge& knowledge) {
  knowledge.contents.resize(static_cast<size_t>(graph.value_count()));
  for (const Node& node : graph.nodes) infer_node(ops, graph, node, knowledge);
}

void infer_concrete(const OpSchema& schema, const Node& node, std::span<const TensorView> inputs,
                    std::vector<std::pair<DType, Shape>>& outputs,
                    const std::function<Shape(int output)>& measure, std::vector<bool>* read) {
  if (!node.bodies.empty())
    throw Error(Code::internal,
                cat(describe(node), ": the sizes of an op with bodies are known only when it has run"));
  Context context(node);
  std::vector<Tensor> borrowed(inputs.size());
  std::vector<DType> dtypes(inputs.size(), DType::none);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorView& view = inputs[i];
    if (!view.present()) continue;
    dtypes[i] = view.dtype;
    context.input_types()[i] = {view.dtype, Dims(view.shape.begin(), view.shape.end())};
    borrowed[i] = Tensor(view.dtype, view.shape, borrow_blob(view.data, view.bytes(), nullptr));
    if (view.data || view.bytes() == 0) context.set_constant(i, &borrowed[i]);
  }
  try {
    check_types(schema, node, dtypes, {});
    SymbolTable symbols;
    if (measure) context.name_unknowns(&symbols, "");
    run_rules(schema, node, context);
    if (read) *read = context.read();
    outputs.assign(node.outputs.size(), {DType::none, Shape()});
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Type& type = context.output_types()[i];
      if (node.outputs[i] == no_value) continue;
      if (!type.dims && !measure) throw Error(Code::bad_model, cat("its operands do not tell the dims of output ", i));
      outputs[i].first = type.dtype;
      const bool sized = type.dims && std::all_of(type.dims->begin(), type.dims->end(), [](const Dim& dim) { return dim.is_constant(); });
      if (!sized) outputs[i].second = measure(static_cast<int>(i));
      for (size_t axis = 0; sized && axis < type.dims->size(); ++axis)
        outputs[i].second.push_back((*type.dims)[axis].constant());
      const Shape& shape = outputs[i].second;
      checked_elements({shape.begin(), shape.end()}, dtype_bits(type.dtype));
    }
  } catch (const Error& error) {
    throw error.at(describe(node));
  }
}

}  // namespace plait
