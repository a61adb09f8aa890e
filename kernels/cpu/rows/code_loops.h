#pragma once
// Per-target loops between numbers and their 8-bit codes.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Loops of one type of codes, u8 or i8. Numbers are rounded to even, and codes saturate.
template <class Code>
struct CodesOf {
  /// y = round(x / scale) + zero. False if a quotient is NaN; then its code is any.
  bool (*quantize)(const float* x, int64_t n, float scale, float zero, Code* y);
  /// Row by row of sums [rows, n]: y = round((sum + bias) scale) + zero, with a bias (null: 0) and a scale for each row; rows of y are
  /// `pitch` apart. No sum with its bias may leave i32.
  void (*requantize)(const int32_t* sums, int64_t rows, int64_t n, const int32_t* biases, const float* scales,
                     float zero, Code* y, int64_t pitch);
  /// y = (x - zero) scale.
  void (*dequantize)(const Code* x, int64_t n, float scale, float zero, float* y);
  /// y = x - zero.
  void (*centre)(const Code* x, int64_t n, int32_t zero, int16_t* y);
};

struct CodeLoops {
  CodesOf<uint8_t> u8;
  CodesOf<int8_t> i8;
  /// y = x as f32, rounded to even.
  void (*convert)(const int32_t* x, int64_t n, float* y);
  /// Widens the range so that it holds all of x that are not NaN.
  void (*range)(const float* x, int64_t n, float& low, float& high);
  /// sums[j] = the sum of x[tap][j] weights[tap] over 2 `pairs` taps. Reads and writes up to 64 elements beyond n.
  void (*weigh)(const int16_t* const* x, const int16_t* weights, int64_t pairs, int64_t n, int32_t* sums);
};

const CodeLoops& code_loops(Isa isa);
inline const CodesOf<uint8_t>& codes_of(const CodeLoops& loops, const uint8_t*) { return loops.u8; }
inline const CodesOf<int8_t>& codes_of(const CodeLoops& loops, const int8_t*) { return loops.i8; }

}  // namespace plait::cpu
