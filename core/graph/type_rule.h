#pragma once
// The types rule: one string per op that names the element types which it takes, by operand.
//
//   rule    := operand ("," operand)* ["->" operand ("," operand)*]
//   operand := word+                   a dtype ("f16") or a set of them:
//                floats                f16 bf16 f32 f64
//                integers              i8 i16 i32 i64 u8 u16 u32 u64
//                index                 i32 i64
//                numbers               floats integers
//                small_floats          f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1
//                small_integers        i4 u4 i2 u2
//                any                   all of these, and bool: every dtype but strings and complex numbers
//              "-"                     the operand must be absent
//
// Operands beyond the last that is named take what the last one takes. Results are named where an attribute chooses
// their dtype.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"

namespace plait {

class TypeSet {
 public:
  void add(DType dtype) { bits_ |= uint32_t{1} << static_cast<int>(dtype); }
  void add(TypeSet other) { bits_ |= other.bits_; }
  bool has(DType dtype) const { return bits_ >> static_cast<int>(dtype) & 1; }
  bool empty() const { return bits_ == 0; }

 private:
  uint32_t bits_ = 0;
};

struct TypeRule {
  std::vector<TypeSet> operands, results;  ///< an empty set: must be absent

  /// What operand `index` may be; null where the rule says nothing.
  static const TypeSet* of(const std::vector<TypeSet>& sets, size_t index) {
    return sets.empty() ? nullptr : &sets[index < sets.size() ? index : sets.size() - 1];
  }
};

/// "" is a rule that says nothing. Throws Error(invalid_argument) with the rule and the word that is none.
TypeRule parse_type_rule(std::string_view text);

}  // namespace plait
