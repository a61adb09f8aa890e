#include "core/base/dtype.h"

#include <iterator>

namespace plait {
namespace {

struct Row {
  std::string_view name;
  int bits;
};

// Indexed by the enum's number.
constexpr Row rows[] = {
    {"none", 0}, {"f32", 32},   {"u8", 8},     {"i8", 8},       {"u16", 16},       {"i16", 16},   {"i32", 32},
    {"i64", 64}, {"string", 64}, {"bool", 8},   {"f16", 16},     {"f64", 64},       {"u32", 32},   {"u64", 64},
    {"c64", 64}, {"c128", 128}, {"bf16", 16},  {"f8e4m3fn", 8}, {"f8e4m3fnuz", 8}, {"f8e5m2", 8}, {"f8e5m2fnuz", 8},
    {"u4", 4},   {"i4", 4},     {"f4e2m1", 4}, {"f8e8m0", 8},   {"u2", 2},         {"i2", 2},
};

const Row& row(DType dtype) {
  auto index = static_cast<size_t>(dtype);
  return rows[index < std::size(rows) ? index : 0];
}

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }
int dtype_bits(DType dtype) { return row(dtype).bits; }

DType dtype_from_name(std::string_view name) {
  for (size_t i = 1; i < std::size(rows); ++i)
    if (rows[i].name == name) return static_cast<DType>(i);
  return DType::none;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::u16:
    case DType::i16:
    case DType::u32:
    case DType::i32:
    case DType::u64:
    case DType::i64: return true;
    default: return false;
  }
}

float to_float(Float16 x) {
  uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  uint32_t mantissa = x.bits & 0x3FFu;
  uint32_t wide;
  if (exponent == 31) {
    wide = sign | 0x7F800000u | (mantissa << 13);
  } else if (exponent) {
    wide = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {  // zero and subnormal: mantissa x 2^-24 is exact in float
    float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

Float16 to_float16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // rounds past 65504
  if (magnitude < 0x38800000u) {  // below 2^-14: the hardware's float rounding does the work at 2^-24 steps
    float value;
    std::memcpy(&value, &magnitude, sizeof value);
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(value * 0x1p24f)))};
  }
  uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace plait
