#include "kernels/reference/base/minifloat.h"

#include <algorithm>
#include <limits>

namespace plait::reference {
namespace {

struct Format {
  int mantissa;       ///< bits
  int bias;
  uint8_t sign;       ///< the sign's bit
  uint8_t largest;    ///< bits of the largest finite number
  int nan;            ///< bits of (one) NaN, -1: none
  int infinity;       ///< bits, -1: none
  bool negative_zero;
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f8e4m3fn: return {3, 7, 0x80, 0x7E, 0x7F, -1, true};
    case DType::f8e4m3fnuz: return {3, 8, 0x80, 0x7F, 0x80, -1, false};
    case DType::f8e5m2: return {2, 15, 0x80, 0x7B, 0x7E, 0x7C, true};
    case DType::f8e5m2fnuz: return {2, 16, 0x80, 0x7F, 0x80, -1, false};
    default: return {1, 1, 0x08, 0x07, -1, -1, true};  // f4e2m1
  }
}

double decode_power(uint8_t bits) {
  return bits == 0xFF ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - 127);
}

uint8_t encode_power(double value, bool saturate, PowerRounding rounding) {
  if (std::isnan(value)) return 0xFF;
  value = std::fabs(value);
  if (std::isinf(value)) return saturate ? 0xFE : 0xFF;
  if (value == 0) return 0;
  int exponent;
  double fraction = std::frexp(value, &exponent) * 2;  // value = fraction x 2^(exponent - 1), fraction in [1, 2)
  --exponent;
  bool up = rounding == PowerRounding::up ? fraction > 1 : rounding == PowerRounding::nearest && fraction >= 1.5;
  if (exponent + up > 127) return saturate ? 0xFE : 0xFF;
  return static_cast<uint8_t>(std::max(exponent + up, -127) + 127);
}

}  // namespace

bool is_minifloat(DType dtype) {
  switch (dtype) {
    case DType::f8e4m3fn: case DType::f8e4m3fnuz: case DType::f8e5m2: case DType::f8e5m2fnuz: case DType::f4e2m1:
    case DType::f8e8m0: return true;
    default: return false;
  }
}

double decode_minifloat(DType dtype, uint8_t bits) {
  if (dtype == DType::f8e8m0) return decode_power(bits);
  Format format = format_of(dtype);
  uint8_t magnitude = bits & static_cast<uint8_t>(format.sign - 1);
  bool negative = bits & format.sign;
  double value;
  if (!format.negative_zero && bits == format.nan) return std::numeric_limits<double>::quiet_NaN();
  if (magnitude > format.largest) {
    value = magnitude == format.infinity ? std::numeric_limits<double>::infinity()
                                         : std::numeric_limits<double>::quiet_NaN();
  } else {
    int exponent = magnitude >> format.mantissa, fraction = magnitude & ((1 << format.mantissa) - 1);
    if (exponent) fraction += 1 << format.mantissa;
    value = std::ldexp(fraction, std::max(exponent, 1) - format.bias - format.mantissa);
  }
  return negative ? -value : value;
}

uint8_t encode_minifloat(DType dtype, double value, bool saturate, PowerRounding rounding) {
  if (dtype == DType::f8e8m0) return encode_power(value, saturate, rounding);
  Format format = format_of(dtype);
  uint8_t sign = std::signbit(value) ? format.sign : 0;
  if (std::isnan(value))
    return static_cast<uint8_t>(format.nan < 0 ? format.sign : (format.negative_zero ? sign : 0) | format.nan);
  double magnitude = std::fabs(value), largest = decode_minifloat(dtype, format.largest);
  int exponent;
  std::frexp(magnitude, &exponent);
  // Zero and the subnormals share the smallest exponent.
  exponent = magnitude == 0 ? 1 - format.bias : std::max(exponent - 1, 1 - format.bias);
  // In units of the last place the hardware rounds (to nearest even).
  double units =
      std::isinf(magnitude) ? magnitude : std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));
  if (std::ldexp(units, exponent - format.mantissa) > largest) {
    if (saturate || format.nan < 0) return sign | format.largest;
    if (format.infinity >= 0) return static_cast<uint8_t>(sign | format.infinity);
    return static_cast<uint8_t>((format.negative_zero ? sign : 0) | format.nan);
  }
  // The leading one of a normal number adds 1 to the exponent field, whose first value it stands for.
  auto bits = static_cast<uint8_t>(static_cast<int>(units) + ((exponent + format.bias - 1) << format.mantissa));
  if (bits == 0 && !format.negative_zero) return 0;
  return sign | bits;
}

}  // namespace plait::reference
