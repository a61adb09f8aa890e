#pragma once
// Transposes 16 vectors of 16 lanes.
#include <immintrin.h>

namespace plait::cpu {

// g++ 12's own header initialises "undefined" registers with themselves.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

__attribute__((target("avx512f"))) inline void transpose_lanes(__m512 (&v)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  __m512 u[16];  // u[4 b + c]: column c of each 128-bit block, for rows [4 b, 4 b + 4)
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_shuffle_f32x4(u[c], u[c + 4], 0x44), b = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0x44);
    const __m512 d = _mm512_shuffle_f32x4(u[c], u[c + 4], 0xEE), e = _mm512_shuffle_f32x4(u[c + 8], u[c + 12], 0xEE);
    v[c] = _mm512_shuffle_f32x4(a, b, 0x88);
    v[c + 4] = _mm512_shuffle_f32x4(a, b, 0xDD);
    v[c + 8] = _mm512_shuffle_f32x4(d, e, 0x88);
    v[c + 12] = _mm512_shuffle_f32x4(d, e, 0xDD);
  }
}

#pragma GCC diagnostic pop

}  // namespace plait::cpu
