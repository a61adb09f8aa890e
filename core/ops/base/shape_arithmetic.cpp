#include "core/ops/base/shape_arithmetic.h"

#include <algorithm>

namespace plait {

std::optional<int64_t> least(const Dim& value) {
  int64_t constant = 0;
  for (const Dim::Term& term : value.terms()) {
    if (term.symbols.empty()) constant = term.coefficient;
    else if (term.coefficient < 0) return std::nullopt;
  }
  return constant;
}

bool never_negative(const Dim& value) {
  std::optional<int64_t> bound = least(value);
  return bound && *bound >= 0;
}

std::optional<bool> known_less(const Dim& a, const Dim& b) {
  if (std::optional<int64_t> gap = least(b - a); gap && *gap > 0) return true;
  if (never_negative(a - b)) return false;
  return std::nullopt;
}

std::optional<bool> known_equal(const Dim& a, const Dim& b) {
  if (a == b) return true;
  if (known_less(a, b) == true || known_less(b, a) == true) return false;
  return std::nullopt;
}

std::optional<Dim> known_min(const Dim& a, const Dim& b) {
  if (never_negative(b - a)) return a;
  if (never_negative(a - b)) return b;
  return std::nullopt;
}

std::optional<Dim> known_max(const Dim& a, const Dim& b) {
  if (never_negative(a - b)) return a;
  if (never_negative(b - a)) return b;
  return std::nullopt;
}

namespace {

/// Both as numbers, with a divisor other than zero (and excluding the one quotient that overflows).
bool divisible(const Dim& a, const Dim& b) {
  return a.is_constant() && b.is_constant() && b.constant() != 0 && b.constant() != -1;
}

}  // namespace

std::optional<Dim> known_quotient(const Dim& a, const Dim& b) {
  if (b == Dim(0)) return std::nullopt;
  if (b == Dim(-1)) return Dim(0) - a;  // saturates where -a does not fit
  if (std::optional<Dim> exact = a.divided(b)) return exact;
  if (!divisible(a, b)) return std::nullopt;
  return Dim(a.constant() / b.constant());
}

std::optional<Dim> known_floor(const Dim& a, const Dim& b) {
  std::optional<Dim> quotient = known_quotient(a, b);
  if (!quotient || !divisible(a, b)) return quotient;
  bool inexact = a.constant() % b.constant() != 0;
  return inexact && (a.constant() < 0) != (b.constant() < 0) ? *quotient - Dim(1) : *quotient;
}

std::optional<Dim> known_ceiling(const Dim& a, const Dim& b) {
  std::optional<Dim> quotient = known_floor(a, b);
  if (!quotient) return std::nullopt;
  return *quotient * b == a ? *quotient : *quotient + Dim(1);
}

std::optional<Dim> known_remainder(const Dim& a, const Dim& b) {
  std::optional<Dim> quotient = known_floor(a, b);
  if (!quotient) return std::nullopt;
  return a - *quotient * b;
}

std::optional<size_t> common_length(InferContext& context) {
  size_t length = 1;
  for (int i = 0; i < context.inputs(); ++i) {
    const Dims* elements = context.contents(i);
    if (!elements) return std::nullopt;
    if (elements->size() != 1) length = elements->size();
  }
  for (int i = 0; i < context.inputs(); ++i) {
    size_t own = context.contents(i)->size();
    if (own != 1 && own != length) return std::nullopt;
  }
  return length;
}

}  // namespace plait
