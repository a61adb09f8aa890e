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
  };
  return sets;
}

TypeSet parse_operand(std::string_view text, std::string_view rule) {
  TypeSet out;
  if (trimmed(text) == "-") return out;
  for (const auto& part : split(trimmed(text), ' ')) {
    auto found = named_sets().find(part);
    DType dtype = dtype_from_name(part);
    if (found != named_sets().end()) out.add(found->second);
    else if (dtype != DType::none) out.add(dtype);
    else throw Error(Code::invalid_argument, cat("types rule ", quote(rule), ": ", quote(part), " is no type"));
  }
  return out;
}

std::vector<TypeSet> parse_operands(std::string_view text, std::string_view rule) {
  std::vector<TypeSet> out;
  for (const auto& part : split(text, ',')) out.push_back(parse_operand(part, rule));
  return out;
}

}  // namespace

TypeRule parse_type_rule(std::string_view text) {
  TypeRule out;
  if (trimmed(text).empty()) return out;
  size_t arrow = text.find("->");
  if (arrow != 0) out.operands = parse_operands(text.substr(0, arrow), text);
  if (arrow != std::string_view::npos) out.results = parse_operands(text.substr(arrow + 2), text);
  return out;
}

}  // namespace plait
