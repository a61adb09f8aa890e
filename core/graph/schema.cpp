#include "core/graph/schema.h"

#include <algorithm>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

namespace {

/// One operand of "data axes? rest...": "?" may be absent, "!" has no gradient, "..." repeats at least once, "?..."
/// any number of times.
struct OperandName {
  std::string_view name;
  bool optional = false;
  bool fixed = false;
  bool repeated = false;
};

std::vector<OperandName> operand_names(std::string_view text) {
  std::vector<OperandName> out;
  while (!(text = trimmed(text)).empty()) {
    size_t end = std::min(text.find(' '), text.size());
    OperandName operand{text.substr(0, end)};
    text.remove_prefix(end);
    if (operand.name.ends_with("...")) {
      operand.repeated = true;
      operand.name.remove_suffix(3);
    }
    for (; operand.name.ends_with('?') || operand.name.ends_with('!'); operand.name.remove_suffix(1))
      (operand.name.back() == '?' ? operand.optional : operand.fixed) = true;
    out.push_back(operand);
  }
  return out;
}

std::pair<int, int> counts(std::string_view text) {
  std::vector<OperandName> operands = operand_names(text);
  int least = 0;
  for (size_t i = 0; i < operands.size(); ++i)
    if (!operands[i].optional) least = static_cast<int>(i) + 1;
  bool repeated = !operands.empty() && operands.back().repeated;
  return {least, repeated ? -1 : static_cast<int>(operands.size())};
}

/// "3-4, 1, , 2-" as limits of each operand.
std::vector<std::pair<int, int>> parse_ranks(std::string_view text) {
  std::vector<std::pair<int, int>> out;
  if (trimmed(text).empty()) return out;
  for (const std::string& operand : split(text, ',')) {
    const std::string_view word = trimmed(operand);
    const size_t dash = word.find('-');
    int64_t least = 0, most = Shape::max_rank;
    bool good = word.empty() || parse_int(word.substr(0, dash), least);
    if (!word.empty() && dash == std::string_view::npos) most = least;
    else if (!word.empty() && dash + 1 < word.size()) good = good && parse_int(word.substr(dash + 1), most);
    if (!good) throw Error(Code::internal, cat("ranks ", quote(text), ": ", quote(word), " is no rank"));
    out.emplace_back(static_cast<int>(least), static_cast<int>(most));
  }
  return out;
}

std::string op_and_domain(std::string_view op) {
  size_t dot = op.rfind('.');
  if (dot == std::string_view::npos) return cat("op ", quote(op), " of domain \"ai.onnx\"");
  return cat("op ", quote(op.substr(dot + 1)), " of domain ", quote(op.substr(0, dot)));
}

void check_count(const Node& node, const OpSchema& row, const char* what, size_t given, int least, int most) {
  auto count = static_cast<int>(given);
  if (count >= least && (most < 0 || count <= most)) return;
  std::string expected = most < 0 ? cat("at least ", least) : least == most ? cat(least) : cat(least, " to ", most);
  throw Error(Code::bad_model,
              cat(describe(node), ": ", op_and_domain(row.name), " takes ", expected, " ", what, ", got ", count));
}

void check_required_inputs(const Node& node, const OpSchema& row) {
  std::vector<OperandName> operands = operand_names(row.inputs);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const OperandName& operand = operands[std::min(i, operands.size() - 1)];
    if (node.inputs[i] == no_value && !operand.optional)
      throw Error(Code::bad_model, cat(describe(node), ": input ", i, " (", operand.name, ") of ",
                                       op_and_domain(row.name), " is required, but absent"));
  }
}

void check_attributes(const Node& node, const OpSchema& row) {
  for (const auto& [name, value] : node.attributes) {
    auto known = std::find_if(row.attributes.begin(), row.attributes.end(),
                              [&name = name](const AttributeRow& a) { return a.name == name; });
    if (known == row.attributes.end())
      throw Error(Code::bad_model,
                  cat(describe(node), ": ", op_and_domain(row.name), " has no attribute ", quote(name)));
    std::string_view kind = attribute_kind(value);
    bool number = known->kind == "float" && kind == "int";
    if (kind != known->kind && !number)
      throw Error(Code::bad_model, cat(describe(node), ": attribute ", quote(name), " of ", op_and_domain(row.name),
                                       " is of kind ", known->kind, ", got ", kind));
  }
  for (const AttributeRow& attribute : row.attributes) {
    if (attribute.default_text != "required") continue;
    bool body = std::any_of(node.bodies.begin(), node.bodies.end(),
                            [&](const auto& entry) { return entry.first == attribute.name; });
    if (!body && !node.attributes.has(attribute.name))
      throw Error(Code::bad_model, cat(describe(node), ": ", op_and_domain(row.name), " needs the attribute ",
                                       quote(attribute.name), " (", attribute.kind, ")"));
  }
}

}  // namespace

void InferContext::fail(std::string message, std::string hint) {
  throw Error(Code::bad_model, std::move(message), std::move(hint));
}

void OpSet::add(OpSchema schema) {
  std::tie(schema.min_inputs, schema.max_inputs) = counts(schema.inputs);
  std::tie(schema.min_outputs, schema.max_outputs) = counts(schema.outputs);
  schema.type_rule = parse_type_rule(schema.types);
  schema.rank_limits = parse_ranks(schema.ranks);
  auto [place, added] = rows_.try_emplace(schema.name);
  if (!added) throw Error(Code::internal, cat("the op ", quote(schema.name), " has two schema rows"));
  place->second = std::move(schema);
}

OpSchema* OpSet::row_of(std::string_view op, std::string_view what) {
  const auto found = rows_.find(op);
  if (found != rows_.end()) return &found->second;
  if (lacking_.empty()) throw Error(Code::internal, cat(what, " of ", quote(op), ", which has no schema row"));
  return nullptr;
}

void OpSet::claim(std::string_view op, int oldest, std::string types) {
  OpSchema* const row = row_of(op, "claims");
  if (!row) return;
  row->oldest = oldest;
  row->type_rule = parse_type_rule(types);
  row->types = std::move(types);
}

void OpSet::differentiate(std::string_view op, void (*gradient)(GradientContext&)) {
  if (OpSchema* const row = row_of(op, "a gradient")) row->gradient = gradient;
}

std::string_view fixed_operand(const OpSchema& row, size_t operand) {
  const std::vector<OperandName> operands = operand_names(row.inputs);
  return operand < operands.size() && operands[operand].fixed ? operands[operand].name : std::string_view();
}

const OpSchema* OpSet::find(std::string_view op) const {
  auto found = rows_.find(op);
  return found == rows_.end() || !found->second.written_as.empty() ? nullptr : &found->second;
}

void check_opset(const OpSet& ops, std::string_view op, int64_t opset) {
  auto row = ops.all().find(op);
  if (row == ops.all().end() || opset >= row->second.oldest) return;
  throw Error(Code::unsupported,
              cat("the form that ", op_and_domain(op), " has in opset ", opset, " is not read; those from opset ",
                  row->second.oldest, " on are"),
              "convert the model to opset 21 or later");
}

namespace {

/// The operands or the results of a node.
struct TypedSide {
  const std::vector<OperandTypes>& named;
  std::span<const DType> dtypes;
  std::string_view names;
  const char* what;

  std::string label(size_t i) const {
    std::vector<OperandName> operands = operand_names(names);
    std::string_view name = operands.empty() ? "" : operands[std::min(i, operands.size() - 1)].name;
    return cat(what, " ", i, " (", name, ")");
  }
};

/// First use of a type variable.
struct VariableUse {
  DType dtype;
  std::string label;
};

}  // namespace

void check_types(const OpSchema& row, const Node& node, std::span<const DType> inputs,
                 std::span<const DType> outputs) {
  auto op = [&] { return cat(op_and_domain(row.name), node.opset ? cat(" opset ", node.opset) : std::string()); };
  std::map<std::string_view, VariableUse> variables;
  for (const TypedSide& side : {TypedSide{row.type_rule.operands, inputs, row.inputs, "input"},
                                TypedSide{row.type_rule.results, outputs, row.outputs, "output"}})
    for (size_t i = 0; i < side.dtypes.size(); ++i) {
      const OperandTypes* types = TypeRule::of(side.named, i);
      const DType dtype = side.dtypes[i];
      if (!types || dtype == DType::none) continue;
      if (!types->has(dtype))
        throw Error(Code::unsupported, cat(op(), " does not take ", dtype_name(dtype), " for ", side.label(i)),
                    cat("the types that it takes: ", row.types));
      if (types->variable.empty()) continue;
      auto [first, added] = variables.try_emplace(types->variable, VariableUse{dtype, {}});
      if (added) first->second.label = side.label(i);
      else if (first->second.dtype != dtype)
        throw Error(Code::bad_model,
                    cat(op(), ": ", side.label(i), " is ", dtype_name(dtype), ", expected ",
                        dtype_name(first->second.dtype), ", the type of ", first->second.label),
                    cat("insert a Cast in front of one of them: both have one type, ", types->variable, ", in ",
                        row.types));
    }
}

void check_ranks(const OpSchema& row, const std::vector<Type>& inputs) {
  for (size_t i = 0; i < inputs.size() && i < row.rank_limits.size(); ++i) {
    if (!inputs[i].dims) continue;
    const auto [least, most] = row.rank_limits[i];
    const auto rank = static_cast<int>(inputs[i].dims->size());
    if (rank >= least && rank <= most) continue;
    std::string expected = least == most ? cat(least) : most == Shape::max_rank ? cat("at least ", least) : cat(least, " to ", most);
    throw Error(Code::bad_model,
                cat(op_and_domain(row.name), ": input ", i, " (", operand_names(row.inputs)[i].name, ") has rank ", rank,
                    ", expected ", expected),
                "reshape the operand, or export the model again");
  }
}

const OpSchema& check_node(const OpSet& ops, const Node& node) {
  const OpSchema* row = ops.find(node.op);
  if (!row)
    throw Error(Code::unsupported, cat(describe(node), ": ", op_and_domain(node.op), " is not known to Plait"),
                ops.lacking().empty() ? "export the model without this op, or decompose it into standard ops"
                                      : ops.lacking());
  check_form(*row, node);
  return *row;
}

void check_form(const OpSchema& row, const Node& node) {
  check_count(node, row, "inputs", node.inputs.size(), row.min_inputs, row.max_inputs);
  check_count(node, row, "outputs", node.outputs.size(), row.min_outputs, row.max_outputs);
  check_required_inputs(node, row);
  check_attributes(node, row);
}

}  // namespace plait
