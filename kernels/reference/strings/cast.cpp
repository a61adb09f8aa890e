#include "kernels/reference/strings/cast.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "kernels/reference/base/minifloat.h"
#include "kernels/reference/strings/texts.h"

namespace plait::reference {
namespace {

/// The shortest decimal that reads back as the same number of the type.
template <class N>
std::string_view decimal(N value, std::span<char> memory) {
  if constexpr (std::is_floating_point_v<N>) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-INF" : "INF";
  }
  const auto end = std::to_chars(memory.data(), memory.data() + memory.size(), value).ptr;
  return {memory.data(), static_cast<size_t>(end - memory.data())};
}

void to_strings(const KernelCall& call, const TensorView& x, const TensorView& y) {
  char memory[64];
  with_number(x.dtype, [&]<class N>(N) {
    for (int64_t i = 0; i < x.elements(); ++i) {
      const N value = load_one<N>(x, i);
      if (x.dtype == DType::boolean) put_text(call, y, i, value != N{0} ? "True" : "False");
      else if (std::is_same_v<N, double> && x.dtype != DType::f64)
        put_text(call, y, i, decimal(static_cast<float>(value), memory));
      else put_text(call, y, i, decimal(value, memory));
    }
  });
}

bool same_letters(std::string_view text, std::string_view upper) {
  if (text.size() != upper.size()) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if ((text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]) != upper[i]) return false;
  return true;
}

/// Whether a decimal beyond a type's range is too great for it, and not too near to zero.
bool is_great(std::string_view digits) {
  int64_t magnitude = 0;  // of the first digit that is not zero: the power of ten after it
  bool begun = false, fraction = false;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] == '.') {
      fraction = true;
    } else if (digits[i] == 'e' || digits[i] == 'E') {
      std::string_view power = digits.substr(i + 1);
      const bool negative = power.starts_with('-');
      if (negative || power.starts_with('+')) power.remove_prefix(1);
      int64_t value = 0;
      if (std::from_chars(power.data(), power.data() + power.size(), value).ec != std::errc()) value = INT64_MAX / 2;
      return negative ? magnitude > value : magnitude > -value;
    } else if (digits[i] >= '0' && digits[i] <= '9') {
      begun = begun || digits[i] != '0';
      if (begun && !fraction) ++magnitude;
      if (!begun && fraction) --magnitude;
    }
  }
  return magnitude > 0;
}

template <class N>
N number_of(std::string_view text, DType dtype) {
  const std::string_view whole = trimmed(text);
  std::string_view digits = whole;
  if (digits.starts_with('+') && !digits.substr(1).starts_with('-')) digits.remove_prefix(1);
  if constexpr (std::is_floating_point_v<N>) {
    const bool negative = digits.starts_with('-');
    const std::string_view name = negative ? digits.substr(1) : digits;
    const N infinity = std::numeric_limits<N>::infinity();
    if (same_letters(name, "INF") || same_letters(name, "INFINITY")) return negative ? -infinity : infinity;
    if (same_letters(name, "NAN")) return std::numeric_limits<N>::quiet_NaN();
  }
  N out{};
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (digits.empty() || end != digits.data() + digits.size() || fault == std::errc::invalid_argument)
    throw Error(Code::invalid_argument, cat(quote(text), " is no number of ", dtype_name(dtype)));
  if constexpr (std::is_floating_point_v<N>) {
    if (fault == std::errc::result_out_of_range) {
      const N sign = digits.starts_with('-') ? -1 : 1;
      return sign * (is_great(digits) ? std::numeric_limits<N>::infinity() : N{0});
    }
  } else if (fault == std::errc::result_out_of_range) {
    throw Error(Code::invalid_argument, cat(quote(text), " is beyond the numbers of ", dtype_name(dtype)));
  }
  return out;
}

/// Integers wrap into narrower ones, as those of other casts do.
void from_strings(const KernelCall& call, const TensorView& x, const TensorView& y) {
  each_text(x, [&](int64_t i) {
    const std::string_view text = text_at(call, x, i);
    if (y.dtype == DType::f64) store_one(y, i, number_of<double>(text, y.dtype));
    else if (is_minifloat(y.dtype))
      put_bits(y, i, encode_minifloat(y.dtype, double{number_of<float>(text, y.dtype)}, true));
    else if (is_float(y.dtype)) store_one(y, i, number_of<float>(text, y.dtype));
    else if (y.dtype == DType::u64) store_one(y, i, number_of<uint64_t>(text, y.dtype));
    else if (y.dtype == DType::boolean && same_letters(trimmed(text), "TRUE")) store_one<int64_t>(y, i, 1);
    else if (y.dtype == DType::boolean && same_letters(trimmed(text), "FALSE")) store_one<int64_t>(y, i, 0);
    else store_one(y, i, number_of<int64_t>(text, y.dtype));
  });
}

}  // namespace

void cast_strings(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (y.dtype == DType::string) to_strings(call, x, y);
  else from_strings(call, x, y);
}

}  // namespace plait::reference
