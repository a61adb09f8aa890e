// Parses and prints dims rules.
#include <cctype>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"

namespace plait {

namespace {

struct RuleReader {
  std::string_view text;
  size_t at = 0;

  [[noreturn]] void fail(std::string_view expected) const {
    std::string got = at < text.size() ? quote(text.substr(at, 1)) : std::string("the end");
    throw Error(Code::invalid_argument,
                cat("dims rule ", quote(text), ", position ", at, ": expected ", expected, ", got ", got));
  }
  void blanks() {
    while (at < text.size() && text[at] == ' ') ++at;
  }
  bool take(std::string_view token) {
    blanks();
    if (text.substr(at, token.size()) != token) return false;
    at += token.size();
    return true;
  }
  void need(std::string_view token) {
    if (!take(token)) fail(quote(token));
  }
  bool word_letter() const {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  }
  std::string word() {
    blanks();
    size_t begin = at;
    while (word_letter()) ++at;
    if (at == begin) fail("a factor");
    return std::string(text.substr(begin, at - begin));
  }

  Factor factor() {
    Factor out;
    out.whole = take("[");
    out.offset = !out.whole && take("@");
    out.name = word();
    if (out.whole) need("]");
    if (std::isdigit(static_cast<unsigned char>(out.name[0]))) {
      if (out.whole || out.offset || !parse_int(out.name, out.fixed) || out.fixed < 1) fail("a name");
      out.whole = true;
    } else if (take("~")) {
      if (out.offset) fail("a factor that is not both offset and jagged");
      out.jagged = out.whole = true;
    }
    return out;
  }

  RuleDim dim() {
    RuleDim out;
    if (take("...")) {
      out.ellipsis = true;
    } else if (take("(")) {
      do out.factors.push_back(factor());
      while (!take(")"));
    } else {
      out.factors.push_back(factor());
      if (out.factors[0].fixed == 1) out.factors.clear();
    }
    return out;
  }

  bool at_end_of_tensor() {
    blanks();
    return at >= text.size() || text[at] == ',' || text[at] == '{' || text.substr(at, 2) == "->";
  }

  RuleTensor operand() {
    RuleTensor out;
    if (take("*")) out.linear = Linearity::alone;
    else if (take("+")) out.linear = Linearity::together;
    while (!at_end_of_tensor()) out.dims.push_back(dim());
    return out;
  }

  RuleTensor result() {
    RuleTensor out;
    while (!at_end_of_tensor()) out.dims.push_back(dim());
    if (!take("{")) return out;
    if (take("max")) out.pending = PendingKind::max;
    else if (take("min")) out.pending = PendingKind::min;
    else if (take("=")) out.pending = PendingKind::equal;
    else if (take("all")) out.all = true;
    else if (!take("sum")) fail("sum, max, min, all or =");
    need("}");
    return out;
  }

  DimsRule rule() {
    DimsRule out;
    if (!take("->")) {
      do out.operands.push_back(operand());
      while (take(","));
      need("->");
    }
    do out.results.push_back(result());
    while (take(","));
    if (at < text.size()) fail("\",\" or the end");
    return out;
  }
};

std::string factor_text(const Factor& factor) {
  if (factor.fixed) return factor.name;
  if (factor.jagged) return factor.name + "~";
  if (factor.whole) return cat("[", factor.name, "]");
  return factor.offset ? "@" + factor.name : factor.name;
}

std::string dim_text(const RuleDim& dim) {
  if (dim.ellipsis) return "...";
  if (dim.factors.empty()) return "1";
  std::string out;
  for (const Factor& factor : dim.factors) out += (out.empty() ? "" : " ") + factor_text(factor);
  return dim.factors.size() > 1 ? cat("(", out, ")") : out;
}

std::string tensor_text(const RuleTensor& tensor, bool result) {
  std::string out = tensor.linear == Linearity::alone ? "*" : tensor.linear == Linearity::together ? "+" : "";
  for (size_t i = 0; i < tensor.dims.size(); ++i) out += (i ? " " : "") + dim_text(tensor.dims[i]);
  if (!result) return out;
  std::string_view kind = tensor.pending == PendingKind::max     ? "{max}"
                          : tensor.pending == PendingKind::min   ? "{min}"
                          : tensor.pending == PendingKind::equal ? "{=}"
                          : tensor.all                           ? "{all}"
                          : tensor.dims.empty()                  ? "{sum}"
                                                                 : "";
  return kind.empty() || out.empty() ? cat(out, kind) : cat(out, " ", kind);
}

}  // namespace

DimsRule parse_dims_rule(std::string_view text) { return RuleReader{text}.rule(); }

std::string text(const DimsRule& rule) {
  std::vector<std::string> operands, results;
  for (const RuleTensor& operand : rule.operands) operands.push_back(tensor_text(operand, false));
  for (const RuleTensor& result : rule.results) results.push_back(tensor_text(result, true));
  std::string left = join(operands, ", ");
  return cat(left, left.empty() || left.back() == ' ' ? "-> " : " -> ", join(results, ", "));
}

}  // namespace plait
