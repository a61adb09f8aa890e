#pragma once
// Shared by packed products of bf16 numbers: numbers as pairs along k, and a tile of outputs.
#include <cstdint>

#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/simd/bf16_dot.h"
#include "kernels/cpu/simd/transpose512.h"

namespace plait::cpu {

PLAIT_BEGIN_AVX512_BF16

constexpr int64_t pair_lanes = 16;              ///< pairs of a vector
constexpr int64_t pair_panel = 2 * pair_lanes;  ///< columns of a tile
constexpr int pair_rows = 14;                   ///< maximum rows of a tile: 14 x 2 sums are 28 of 32 registers

inline __mmask16 mask_of(int64_t count) {
  return static_cast<__mmask16>(count >= pair_lanes ? 0xFFFF : count > 0 ? (1 << count) - 1 : 0);
}

/// 16 numbers as bf16 in the lower halves, rounded to nearest even; NaN stays NaN.
inline __m512i rounded(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i even =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(even, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
}

/// Numbers in memory: `load` converts 16 of them to bf16 in lower halves, `pairs` 32 consecutive ones to 16 pairs.
/// `count` of them exist, the others are zeros.
struct Floats {
  static constexpr int64_t size = 4;
  static inline __m512i load(const uint8_t* p, int64_t count) {
    return rounded(_mm512_maskz_loadu_ps(mask_of(count), p));
  }
  static inline __m512i pairs(const uint8_t* p, int64_t count) {
    const __m256i low = _mm512_cvtepi32_epi16(load(p, count)),
                  high = _mm512_cvtepi32_epi16(load(p + pair_lanes * size, count - pair_lanes));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
};
struct Halves {
  static constexpr int64_t size = 2;
  static inline __m512i load(const uint8_t* p, int64_t count) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask_of(count), p));
  }
  static inline __m512i pairs(const uint8_t* p, int64_t count) {
    if (count >= 2 * pair_lanes) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi16(count > 0 ? (__mmask32{1} << count) - 1 : 0, p);
  }
};

inline __m512i pair(__m512i first, __m512i second) { return _mm512_or_si512(first, _mm512_slli_epi32(second, 16)); }

/// Pair `step` of k of `count` <= 16 adjacent columns, with rows `ld` elements apart; zeros from k on.
template <class T>
inline __m512i pair_at(const uint8_t* data, int64_t ld, int64_t step, int64_t k, int64_t count) {
  const uint8_t* row = data + 2 * step * ld * T::size;
  if (2 * step >= k) return _mm512_setzero_si512();
  const __m512i second = 2 * step + 1 < k ? T::load(row + ld * T::size, count) : _mm512_setzero_si512();
  return pair(T::load(row, count), second);
}

/// Pair `step` + c of `count` <= 16 rows of k numbers, `stride` bytes apart, becomes lane i of v[c] for row i.
template <class T>
inline void pairs_of_rows(const uint8_t* rows, int64_t stride, int64_t count, int64_t k, int64_t step,
                          __m512 (&v)[pair_lanes]) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < pair_lanes; ++i)
    v[i] = i < count ? _mm512_castsi512_ps(T::pairs(rows + i * stride + 2 * step * T::size, k - 2 * step))
                     : _mm512_setzero_ps();
  transpose_lanes(v);
}

/// Adds steps of pairs: a has STRIDE numbers per step, of which the first ROWS are used, b a panel.
template <class Op, int ROWS, int STRIDE>
inline __attribute__((always_inline)) void add_products(__m512 (&sums)[ROWS][2], const uint32_t* a, const uint32_t* b,
                                                        int64_t steps) {
  for (int64_t step = 0; step < steps; ++step, a += STRIDE, b += pair_panel) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + pair_lanes);
    // From L2, 8 steps ahead.
    _mm_prefetch(reinterpret_cast<const char*>(b + 8 * pair_panel), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(b + 8 * pair_panel + pair_lanes), _MM_HINT_T0);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const __m512i one = _mm512_set1_epi32(static_cast<int>(a[i]));
      sums[i][0] = Op::dot(sums[i][0], one, b0);
      sums[i][1] = Op::dot(sums[i][1], one, b1);
    }
  }
}

PLAIT_END_AVX512_BF16

}  // namespace plait::cpu
