#include "core/graph/type_rule.h"

#include <map>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

TypeSet set_of(std::initializer_list<DType> dtypes) {
  TypeSet out;
  for (DType dtype : dtypes) out.add(dtype);
  return out;
}

TypeSet joined(std::initializer_list<TypeSet> sets) {
  TypeSet out;
  for (TypeSet set : sets) out.add(set);
  return out;
}

const std::map<std::string_view, TypeSet>& named_sets() {
  using enum DType;
  static const TypeSet floats = set_of({f16, bf16, f32, f64});
  static const TypeSet integers = set_of({i8, i16, i32, i64, u8, u16, u32, u64});
  static const TypeSet small_floats = set_of({f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0, f4e2m1});
  static const TypeSet small_integers = set_of({i4, u4, i2, u2});
  static const std::map<std::string_view, TypeSet> sets = {
      {"floats", floats},
      {"integers", integers},
      {"index", set_of({i32, i64})},
      {"numbers", joined({floats, integers})},
      {"small_floats", small_floats},
      {"small_integers", small_integers},
      {"any", joined({floats, integers, small_floats, small_integers, set_of({boolean})})},
      {"values", joined({floats, integers, small_floats, small_integers, set_of({boolean, string})})},
  };
  return sets;
}

using Variables = std::map<std::string, TypeSet, std::less<>>;

bool is_variable(std::string_view word) {
  if (word.empty() || word[0] < 'A' || word[0] > 'Z') return false;
  return word.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

OperandTypes parse_operand(std::string_view text, std::string_view rule, Variables& variables) {
  OperandTypes out;
  text = trimmed(text);
  if (text == "-") return out;
  const size_t colon = text.find(':');
  const std::string_view variable = trimmed(text.substr(0, colon));
  auto fail = [&](std::string_view word, const char* why) {
    throw Error(Code::invalid_argument, cat("types rule ", quote(rule), ": ", quote(word), " ", why));
  };
  if (colon != std::string_view::npos || is_variable(variable)) {
    if (!is_variable(variable)) fail(variable, "is no variable");
    out.variable = variable;
    auto known = variables.find(variable);
    if (colon == std::string_view::npos) {
      if (known == variables.end()) fail(variable, "has no types");
      out.add(known->second);
      return out;
    }
    if (known != variables.end()) fail(variable, "has types already");
    text = trimmed(text.substr(colon + 1));
  }
  for (const auto& part : split(text, ' ')) {
    auto found = named_sets().find(part);
    DType dtype = dtype_from_name(part);
    if (found != named_sets().end()) out.add(found->second);
    else if (dtype != DType::none) out.add(dtype);
    else fail(part, "is no type");
  }
  if (!out.variable.empty()) variables.emplace(out.variable, out);
  return out;
}

std::vector<OperandTypes> parse_operands(std::string_view text, std::string_view rule, Variables& variables) {
  std::vector<OperandTypes> out;
  for (const auto& part : split(text, ',')) out.push_back(parse_operand(part, rule, variables));
  return out;
}

}  // namespace

TypeRule parse_type_rule(std::string_view text) {
  TypeRule out;
  if (trimmed(text).empty()) return out;
  Variables variables;
  size_t arrow = text.find("->");
  if (arrow != 0) out.operands = parse_operands(text.substr(0, arrow), text, variables);
  if (arrow != std::string_view::npos) out.results = parse_operands(text.substr(arrow + 2), text, variables);
  return out;
}

}  // namespace plait
