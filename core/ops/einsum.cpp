// Einsum: the op whose equation is a dims rule.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

/// The labels of each operand and of the result, "..." among them.
struct Equation {
  std::vector<DimNames> operands;
  DimNames result;
};

/// Upper and lower case are different labels, as they are different names.
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

/// Without "->" the result has the labels that occur once, in alphabetic order, after "...".
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

/// Sizes of a term's dims by label; those of "..." by their place from the end ("...0" is the last).
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

/// A label that occurs twice in a term (a diagonal) has no rule, nor one whose size 1 is broadcast.
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

}  // namespace

void register_einsum(OpSet& ops) {
  ops.add({.name = "Einsum",
           .inputs = "inputs...",
           .outputs = "output",
           .attributes = {{"equation", "string", "required"}},
           .dims = "*b i k, *b k j -> b i j",
           .dims_of = einsum_dims,
           .infer = infer_einsum,
           .doc = "the product of all, summed over the labels that the result lacks",
           .since = 12});
}

}  // namespace plait
