#pragma once
// Products of pairs of bf16 numbers, by the processor's instruction, and emulated with the same bits.
#include "kernels/cpu/simd/avx512_bf16.h"

namespace plait::cpu {

PLAIT_BEGIN_AVX512_BF16

/// sum + products of the pairs in each lane: first the odd ones, then the even ones, each rounded to f32.
struct Hardware {
  static inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
};
struct Emulated {
  static inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
    const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
    sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, odd)),
                          _mm512_castsi512_ps(_mm512_and_si512(b, odd)), sum);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                           _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), sum);
  }
};

PLAIT_END_AVX512_BF16

}  // namespace plait::cpu
