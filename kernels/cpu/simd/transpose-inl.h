// Per-target: transposes L vectors of L lanes.
#if defined(PLAIT_KERNELS_CPU_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_TRANSPOSE_INL_H
#undef PLAIT_KERNELS_CPU_TRANSPOSE_INL_H
#else
#define PLAIT_KERNELS_CPU_TRANSPOSE_INL_H
#endif

#include "kernels/cpu/simd/transpose512.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// Rows become columns: L vectors of L lanes.
HWY_INLINE void transpose(V (&v)[L]) {
#if HWY_TARGET == HWY_AVX3
  __m512 raw[L];
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) raw[i] = v[i].raw;
  transpose_lanes(raw);
#pragma GCC unroll 16
  for (int i = 0; i < L; ++i) v[i] = V{raw[i]};
#else
  __m256 t[L], u[L];
#pragma GCC unroll 4
  for (int i = 0; i < L; i += 2) {
    t[i] = _mm256_unpacklo_ps(v[i].raw, v[i + 1].raw);
    t[i + 1] = _mm256_unpackhi_ps(v[i].raw, v[i + 1].raw);
  }
#pragma GCC unroll 2
  for (int i = 0; i < L; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    v[c] = V{_mm256_permute2f128_ps(u[c], u[c + 4], 0x20)};
    v[c + 4] = V{_mm256_permute2f128_ps(u[c], u[c + 4], 0x31)};
  }
#endif
}

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#endif
