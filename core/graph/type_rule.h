#pragma once
// The types rule: one string per op that specifies the element types of each operand, and which operands share one.
//
//   rule    := operand ("," operand)* ["->" operand ("," operand)*]
//   operand := [variable ":"] word+    a dtype ("f16") or a set of them:
//                floats                f16 bf16 f32 f64
//                integers              i8 i16 i32 i64 u8 u16 u32 u64
//                index                 i32 i64
//                numbers               floats integers
//                small_floats          f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1
//                small_integers        i4 u4 i2 u2
//                any                   all of these, and bool: every dtype but strings and complex numbers
//                values                any, and string
//            | variable                the set that the variable had before
//            | "-"                     the operand must be absent
//   variable := "A" to "Z", then digits
//
// All operands and results of one variable have the same dtype, as those of a type variable of the ONNX standard:
// "T:any, index, T" for the data, indices and updates of a scatter. Operands after the last named one are like it,
// with its set and variable ("T:numbers" for a and b of an Add; only "any" for values that may differ). Results are
// named if an attribute chooses their dtype.
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

/// The types of one operand: a set, and a variable that it shares.
struct OperandTypes : TypeSet {
  std::string variable;  ///< "": none
};

struct TypeRule {
  std::vector<OperandTypes> operands, results;  ///< an empty set: must be absent

  /// The types of operand `index`; null if the rule does not name any.
  static const OperandTypes* of(const std::vector<OperandTypes>& named, size_t index) {
    return named.empty() ? nullptr : &named[index < named.size() ? index : named.size() - 1];
  }
};

/// Parses a rule; "" names no types. Throws Error(invalid_argument) with the rule and the word that is neither a type
/// nor a variable, or that gives a variable a second set.
TypeRule parse_type_rule(std::string_view text);

}  // namespace plait
