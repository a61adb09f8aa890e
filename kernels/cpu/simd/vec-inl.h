// Per-target helpers: vectors of f32, loads from f32, bf16 and f16, tails, sums over lanes.
//
// Included once for each target of a file (hence no #pragma once; Highway flips the toggle).
#if defined(PLAIT_KERNELS_CPU_VEC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_VEC_INL_H
#undef PLAIT_KERNELS_CPU_VEC_INL_H
#else
#define PLAIT_KERNELS_CPU_VEC_INL_H
#endif

#include <math.h>
#include <string.h>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;  // 8 lanes for AVX2, 16 for AVX-512
using DU = hn::RebindToUnsigned<D>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
constexpr D df;
constexpr DU du;
constexpr DI di;
constexpr int64_t L = HWY_TARGET == HWY_AVX3 ? 16 : 8;

/// An element type in memory: `load` takes L elements at any address, `store` rounds to nearest even.
struct AsF32 {
  static constexpr int64_t size = 4;
  static HWY_INLINE V load(const uint8_t* p) { return hn::LoadU(df, reinterpret_cast<const float*>(p)); }
  static HWY_INLINE void store(V x, uint8_t* p) { hn::StoreU(x, df, reinterpret_cast<float*>(p)); }
};
struct AsBF16 {
  static constexpr int64_t size = 2;
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<uint16_t, D> d16;
    auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
    return hn::BitCast(df, hn::ShiftLeft<16>(bits));
  }
  static HWY_INLINE hn::Vec<DU> round(V x) {  // the upper halves, as to_bfloat16 of core/base/dtype.h
    auto bits = hn::BitCast(du, x);
    auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    auto even = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
    auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
    return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, even);
  }
  static HWY_INLINE void store(V x, uint8_t* p) {
    const hn::Rebind<uint16_t, D> d16;
    hn::StoreU(hn::TruncateTo(d16, round(x)), d16, reinterpret_cast<uint16_t*>(p));
  }
};
struct AsF16 {
  static constexpr int64_t size = 2;
  static HWY_INLINE V load(const uint8_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  }
  static HWY_INLINE void store(V x, uint8_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(p));
  }
};

/// The first `count` < L elements, zero-padded, none if it is negative; accesses no byte beyond.
template <class T>
HWY_INLINE V load_some(const uint8_t* p, int64_t count) {
  alignas(64) uint8_t buffer[L * 4] = {};
  if (count > 0 && count < L) memcpy(buffer, p, static_cast<size_t>(count * T::size));
  return T::load(buffer);
}
template <>
HWY_INLINE V load_some<AsF32>(const uint8_t* p, int64_t count) {
  return hn::MaskedLoad(hn::FirstN(df, static_cast<size_t>(count > 0 ? count : 0)), df, reinterpret_cast<const float*>(p));
}
template <class T>
HWY_INLINE void store_some(V x, uint8_t* p, int64_t count) {
  if (count <= 0 || count >= L) return;
  alignas(64) uint8_t buffer[L * 4];
  T::store(x, buffer);
  memcpy(p, buffer, static_cast<size_t>(count * T::size));
}

/// Whole vector or, at the end of an array, part of one.
template <class T>
HWY_INLINE V load_up_to(const uint8_t* p, int64_t count) {
  return HWY_LIKELY(count >= L) ? T::load(p) : load_some<T>(p, count);
}
template <class T>
HWY_INLINE void store_up_to(V x, uint8_t* p, int64_t count) {
  if (HWY_LIKELY(count >= L)) T::store(x, p);
  else store_some<T>(x, p, count);
}
HWY_INLINE const uint8_t* bytes(const float* p) { return reinterpret_cast<const uint8_t*>(p); }
HWY_INLINE uint8_t* bytes(float* p) { return reinterpret_cast<uint8_t*>(p); }

/// The sums over the lanes of four vectors: {sum a, sum b, sum c, sum d}. One fixed tree: halves are added first,
/// then quarters, ...; AVX-512: 2 blends, 6 shuffles, 5 additions.
HWY_INLINE __m128 sum_lanes(V a, V b, V c, V d) {
#if HWY_TARGET == HWY_AVX3
  auto halves = [](__m512 p, __m512 q) HWY_ATTR {  // {p 8 lanes, q 8 lanes}
    return _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, p, q), _mm512_shuffle_f32x4(p, q, 0x4E));
  };
  __m512 ab = halves(a.raw, b.raw), cd = halves(c.raw, d.raw);
  // Each 128-bit block belongs to one of a, b, c, d from here on.
  __m512 s = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4E));
  s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xB1));
  return _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, s));
#else
  auto halves = [](__m256 p, __m256 q) HWY_ATTR {  // {p 4 lanes, q 4 lanes}
    return _mm256_add_ps(_mm256_blend_ps(p, q, 0xF0), _mm256_permute2f128_ps(p, q, 0x21));
  };
  __m256 ab = halves(a.raw, b.raw), cd = halves(c.raw, d.raw);
  __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));  // a a c c | b b d d
  s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xB1));
  return _mm_unpacklo_ps(_mm_shuffle_ps(_mm256_castps256_ps128(s), _mm256_castps256_ps128(s), 0x08),
                         _mm_shuffle_ps(_mm256_extractf128_ps(s, 1), _mm256_extractf128_ps(s, 1), 0x08));
#endif
}
/// The same tree for one vector.
HWY_INLINE float sum_lanes(V a) { return _mm_cvtss_f32(sum_lanes(a, hn::Zero(df), hn::Zero(df), hn::Zero(df))); }

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#endif
