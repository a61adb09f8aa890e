#pragma once
// Shape arithmetic: exporters' computations on sizes (Shape, Gather, Add, Equal, Where, ...) as functions of symbolic
// elements. Sizes are symbols, which are assumed to be non-negative and nothing else.
#include <optional>

#include "core/graph/schema.h"

namespace plait {

/// A lower bound, if there is one: 2*s + 1 is at least 1, s - t has none.
std::optional<int64_t> least(const Dim& value);
/// Whether a >= 0 for all values of its symbols.
bool never_negative(const Dim& value);

// Each returns nullopt if the answer depends on the symbols.
std::optional<bool> known_equal(const Dim& a, const Dim& b);
std::optional<bool> known_less(const Dim& a, const Dim& b);
std::optional<Dim> known_min(const Dim& a, const Dim& b);
std::optional<Dim> known_max(const Dim& a, const Dim& b);
/// Exact, or towards zero for constants (like ONNX's integer Div); nullopt for a zero divisor.
std::optional<Dim> known_quotient(const Dim& a, const Dim& b);
/// Away from zero for constants, otherwise exact: the number of steps of b > 0 that cover a >= 0.
std::optional<Dim> known_ceiling(const Dim& a, const Dim& b);
/// Towards minus infinity for constants, otherwise exact.
std::optional<Dim> known_floor(const Dim& a, const Dim& b);
/// ONNX's Mod with fmod = 0: the sign of the divisor.
std::optional<Dim> known_remainder(const Dim& a, const Dim& b);

/// Element functions of Dims: nullopt if the result is unknown.
using Unary = std::optional<Dim> (*)(const Dim&);
using Binary = std::optional<Dim> (*)(const Dim&, const Dim&);

/// Element i of an operand with `length` or one elements.
inline const Dim& element(const Dims& elements, size_t i) { return elements.size() == 1 ? elements[0] : elements[i]; }

/// The elements that operands of 1 or n elements broadcast to; nullopt if one is unknown or the lengths differ.
std::optional<size_t> common_length(InferContext& context);

/// Sets output 0's contents elementwise from those of the inputs, if all are known.
template <Unary function>
void map_contents(InferContext& context) {
  const Dims* a = context.contents(0);
  if (!a) return;
  Dims out;
  for (const Dim& x : *a) {
    std::optional<Dim> y = function(x);
    if (!y) return;
    out.push_back(std::move(*y));
  }
  context.set_contents(0, std::move(out));
}

/// The same over all inputs from the left: Add, or n-ary Max.
template <typename Function>
void fold_contents(InferContext& context, const Function& function) {
  std::optional<size_t> length = common_length(context);
  if (!length) return;
  Dims out;
  for (size_t i = 0; i < *length; ++i) {
    std::optional<Dim> sum = element(*context.contents(0), i);
    for (int k = 1; sum && k < context.inputs(); ++k) sum = function(*sum, element(*context.contents(k), i));
    if (!sum) return;
    out.push_back(std::move(*sum));
  }
  context.set_contents(0, std::move(out));
}
template <Binary function>
void fold_contents(InferContext& context) {
  fold_contents(context, function);
}

}  // namespace plait
