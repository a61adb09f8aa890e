// Einsum: its equation is a dims rule.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/graph/gradient.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// The labels of each operand and of the result, including "...".
struct Equation {
  std::vector<DimNames> operands;
  DimNames result;
};

/// Upper and lower case are different labels.
DimNames labels(std::string_view term) {
  DimNames out;
  while (!(term = trimmed(term)).empty()) {
    size_t length = term.starts_with("...") ? 3 : 1;
    out.emplace_back(term.substr(0, length));
    if (length == 1 && !std::isalpha(static_cast<unsigned char>(term[0])))
      InferContext::fail(cat("the equation has ", quote(out.back()), " for a label"));
    term.remove_prefix(length);
  }
  return out;
}

/// Without "->" the result has "...", then the labels that occur once, in alphabetic order.
DimNames implicit_result(std::string_view terms) {
  std::string out;
  for (char letter : terms)
    if (std::isalpha(static_cast<unsigned char>(letter)) && std::count(terms.begin(), terms.end(), letter) == 1)
      out += letter;
  std::sort(out.begin(), out.end());
  return labels(cat(terms.find("...") == std::string_view::npos ? "" : "...", out));
}

Equation parse_equation(const Attributes& attributes, size_t operands) {
  std::string text = attributes.string("equation", "");
  size_t arrow = text.find("->");
  std::string terms = text.substr(0, arrow);
  Equation out;
  for (const std::string& term : split(terms, ',')) out.operands.push_back(labels(term));
  out.result = arrow == std::string::npos ? implicit_result(terms) : labels(std::string_view(text).substr(arrow + 2));
  if (out.operands.size() != operands)
    InferContext::fail(cat("the equation has ", out.operands.size(), " terms, the node ", operands, " inputs"));
  return out;
}

/// Sizes of a term's dims by label; those of "..." by their index from the end ("...0" is the last).
void label_sizes(const DimNames& term, const Dims& dims, std::map<std::string, Dim>& sizes) {
  bool ellipsis = std::find(term.begin(), term.end(), "...") != term.end();
  size_t named = term.size() - ellipsis;
  if (dims.size() < named || (dims.size() > named && !ellipsis))
    InferContext::fail(cat("a term of ", named, " labels names an operand of rank ", dims.size()));
  size_t at = 0;
  auto set = [&](const std::string& label) {
    auto [known, added] = sizes.try_emplace(label, dims[at]);
    const Dim size = dims[at++];
    if (added || is_one(size)) return;
    std::optional<Dim> both = is_one(known->second) ? size : unify(known->second, size);
    if (!both)
      InferContext::fail(cat("label ", label, " is ", known->second.constant(), " and ", size.constant()));
    known->second = *both;
  };
  for (const std::string& label : term) {
    if (label != "...") set(label);
    else for (size_t rows = dims.size() - named; rows-- > 0;) set(cat("...", rows));
  }
}

void infer_einsum(InferContext& context) {
  context.set_type(0, context.dtype(0));
  Equation equation = parse_equation(context.attributes(), static_cast<size_t>(context.inputs()));
  std::map<std::string, Dim> sizes;
  for (int k = 0; k < context.inputs(); ++k) {
    if (!context.dims(k)) return;
    label_sizes(equation.operands[static_cast<size_t>(k)], *context.dims(k), sizes);
  }
  Dims out;
  auto add = [&](const std::string& label) {
    auto size = sizes.find(label);
    if (size == sizes.end()) InferContext::fail(cat("no term of the equation has label ", label));
    out.push_back(size->second);
  };
  size_t rows = 0;
  while (sizes.contains(cat("...", rows))) ++rows;
  for (const std::string& label : equation.result) {
    if (label != "...") add(label);
    else for (size_t row = rows; row-- > 0;) add(cat("...", row));
  }
  context.set_dims(0, std::move(out));
}

/// No rule for a label that occurs twice in a term (a diagonal), or whose size 1 is broadcast.
std::string einsum_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  Equation equation = parse_equation(node.attributes, in.size());
  std::vector<std::string> operands;
  std::map<std::string, Dim> sizes;
  for (size_t k = 0; k < in.size(); ++k) {
    const DimNames& term = equation.operands[k];
    if (std::set<std::string>(term.begin(), term.end()).size() != term.size()) return "";
    bool rows = std::find(term.begin(), term.end(), "...") != term.end();
    for (size_t i = 0; !rows && i < term.size(); ++i) {
      const Dim& size = sizes.try_emplace(term[i], (*in[k].dims)[i]).first->second;
      if (is_one(size) != is_one((*in[k].dims)[i])) return "";
    }
    operands.push_back("*" + spaced(term));
  }
  return rule_text(operands, {spaced(equation.result)});
}

// ---- Gradient ----

/// The equation with "..." expanded to unused labels, aligned right.
Equation written_out(GradientContext& context) {
  Equation out = parse_equation(context.attributes(), context.node().inputs.size());
  std::set<std::string> used(out.result.begin(), out.result.end());
  for (const DimNames& term : out.operands) used.insert(term.begin(), term.end());
  DimNames free;
  for (char letter = 'A'; letter <= 'z'; ++letter)
    if (std::isalpha(static_cast<unsigned char>(letter)) && !used.contains(std::string(1, letter)))
      free.emplace_back(1, letter);
  auto write = [&](DimNames& term, size_t rank) {
    auto rows = std::find(term.begin(), term.end(), "...");
    if (rows == term.end()) return;
    const size_t count = rank - (term.size() - 1);
    if (count > free.size()) GradientContext::fail("there are not letters enough for its dims");
    const auto at = term.erase(rows);
    term.insert(at, free.rend() - static_cast<std::ptrdiff_t>(count), free.rend());
  };
  for (size_t k = 0; k < out.operands.size(); ++k) write(out.operands[k], context.dims(context.input(k)).size());
  write(out.result, context.dims(context.output()).size());
  return out;
}

/// The elements where dims of one label have one index, zeros elsewhere.
ValueId on_diagonals(GradientContext& context, ValueId a, const DimNames& term) {
  const Dims dims = context.dims(a);
  for (size_t i = 0; i < term.size(); ++i) {
    const auto first = static_cast<size_t>(std::find(term.begin(), term.end(), term[i]) - term.begin());
    if (first == i) continue;
    const ValueId square = context.add("Expand", {context.number(0, a), context.sizes(Dims{dims[first], dims[i]})});
    Dims spread(dims.size(), Dim(1));
    spread[first] = dims[first], spread[i] = dims[i];
    a = context.times(a, context.reshaped(context.add("EyeLike", {square}), spread));
  }
  return a;
}

/// An operand's gradient is the product of dy with the other operands, summed over what the operand lacks. A label
/// that only it has was summed: its dim is broadcast; one of size 1 that others broadcast is summed. Of a label that it has several
/// times only the diagonal was read.
void of_einsum(GradientContext& context) {
  const Equation equation = written_out(context);
  const size_t count = equation.operands.size();
  for (size_t k = 0; k < count; ++k) {
    if (!context.wants(k)) continue;
    const DimNames& term = equation.operands[k];
    std::vector<ValueId> inputs{context.gradient()};
    std::vector<std::string> terms{join(equation.result, "")};
    std::map<std::string, Dim> sizes;
    label_sizes(equation.result, context.dims(context.gradient()), sizes);
    for (size_t other = 0; other < count; ++other) {
      if (other == k) continue;
      inputs.push_back(context.input(other));
      terms.push_back(join(equation.operands[other], ""));
      label_sizes(equation.operands[other], context.dims(context.input(other)), sizes);
    }
    std::string kept;
    Dims present, dims = context.dims(context.input(k));
    for (size_t i = 0; i < term.size(); ++i) {
      const auto size = sizes.find(term[i]);
      const bool first =
          std::find(term.begin(), term.end(), term[i]) == term.begin() + static_cast<std::ptrdiff_t>(i);
      const bool has = first && size != sizes.end() && is_one(size->second) == is_one(dims[i]);
      if (has) kept += term[i];
      present.push_back(has ? dims[i] : Dim(1));
    }
    Attributes attributes;
    attributes.set("equation", cat(join(terms, ","), "->", kept));
    const ValueId product = context.add("Einsum", std::move(inputs), std::move(attributes));
    const ValueId all = context.expanded(context.reshaped(product, present), context.input(k));
    context.give(k, on_diagonals(context, all, term));
  }
}

}  // namespace

void register_einsum(OpSet& ops) {
  ops.add({.name = "Einsum",
           .inputs = "inputs...",
           .outputs = "output",
           .attributes = {{"equation", "string", "required"}},
           .dims = "*b i k, *b k j -> b i j",
           .dims_of = einsum_dims,
           .infer = infer_einsum,
           .gradient = of_einsum,
           .doc = "the product of all, summed over the labels that the result lacks",
           .since = 12});
}

}  // namespace plait
