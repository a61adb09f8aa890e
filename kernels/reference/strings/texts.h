#pragma once
// Elements of strings as texts: operands are numbered by the run's table (core/base/strings.h).
#include <string_view>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {

inline std::string_view text_at(const KernelCall& call, const TensorView& strings, int64_t i) {
  return call.strings->text(get_bits(strings, i));
}

inline void put_text(const KernelCall& call, const TensorView& strings, int64_t i, std::string_view text) {
  put_bits(strings, i, call.strings->number(text));
}

/// Calls f(i) for each element; errors name the operand's element.
template <class F>
void each_text(const TensorView& strings, F f) {
  for (int64_t i = 0; i < strings.elements(); ++i) {
    try {
      f(i);
    } catch (const Error& error) {
      throw error.at(cat("element ", i));
    }
  }
}

}  // namespace plait::reference
