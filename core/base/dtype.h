#pragma once
// Element types. The numbers are those of ONNX's TensorProto.DataType, so that files and hosts mean the same.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace plait {

enum class DType : int32_t {
  none = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,  ///< 64 bits an element, in two forms: core/base/strings.h
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  c64 = 14,
  c128 = 15,
  bf16 = 16,
  f8e4m3fn = 17,
  f8e4m3fnuz = 18,
  f8e5m2 = 19,
  f8e5m2fnuz = 20,
  u4 = 21,  ///< two a byte, element 0 in the low nibble
  i4 = 22,
  f4e2m1 = 23,
  f8e8m0 = 24,
  u2 = 25,  ///< four a byte, element 0 in the lowest bits
  i2 = 26,
};

/// "f32", "bf16", "i64", "bool", ...
std::string_view dtype_name(DType dtype);
/// The inverse; DType::none for an unknown name.
DType dtype_from_name(std::string_view name);
/// Bits of one element; 0 for none.
int dtype_bits(DType dtype);

bool is_float(DType dtype);    ///< f32, f64, f16, bf16
bool is_integer(DType dtype);  ///< signed and unsigned, 8 bits and more; not bool

/// Storage-only number types: they convert to and from float, arithmetic happens there.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline float to_float(BFloat16 x) {
  uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}

/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN.
inline BFloat16 to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16)};
}

float to_float(Float16 x);
Float16 to_float16(float x);  ///< rounds to nearest even, overflows to infinity

}  // namespace plait
