#include "kernels/cpu/rows/code_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/code_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

using I = hn::Vec<DI>;
constexpr hn::Rebind<int16_t, D> d16;

/// The first `count` elements, or all that a vector of D has; the others are 0.
template <class To, class T>
HWY_INLINE hn::Vec<To> load_part(To to, const T* x, int64_t count) {
  if (HWY_LIKELY(count >= L)) return hn::LoadU(to, x);
  T held[L] = {};
  for (int64_t i = 0; i < count; ++i) held[i] = x[i];
  return hn::LoadU(to, held);
}

template <class Code>
HWY_INLINE void store_rounded(V x, float zero, Code* y, int64_t count) {
  const V held = hn::Min(hn::Max(x, hn::Set(df, -1024.0f)), hn::Set(df, 1024.0f));  // far beyond all codes
#if HWY_TARGET == HWY_AVX3
  const I whole = hn::Add(I{_mm512_cvtps_epi32(held.raw)}, hn::Set(di, static_cast<int32_t>(zero)));
  const __m128i all = Code(-1) < 0 ? _mm512_cvtsepi32_epi8(whole.raw)
                                   : _mm512_cvtusepi32_epi8(_mm512_max_epi32(whole.raw, _mm512_setzero_si512()));
  if (HWY_LIKELY(count >= L)) _mm_storeu_si128(reinterpret_cast<__m128i*>(y), all);
  else _mm_mask_storeu_epi8(y, static_cast<__mmask16>((1U << count) - 1), all);
#else
  const hn::Rebind<Code, D> codes;
  const I whole = hn::Add(hn::NearestInt(held), hn::Set(di, static_cast<int32_t>(zero)));
  if (HWY_LIKELY(count >= L)) return hn::StoreU(hn::DemoteTo(codes, whole), codes, y);
  Code all[L];
  hn::StoreU(hn::DemoteTo(codes, whole), codes, all);
  for (int64_t i = 0; i < count; ++i) y[i] = all[i];
#endif
}

template <class Code>
bool quantize(const float* x, int64_t n, float scale, float zero, Code* y) {
  bool odd = false;
  const V by = hn::Set(df, scale);
  for (int64_t i = 0; i < n; i += L) {
    V value = load_up_to<AsF32>(bytes(x + i), n - i);
    if (scale != 1) value = hn::Div(value, by);
    if (HWY_UNLIKELY(!hn::AllFalse(df, hn::And(hn::IsNaN(value), hn::FirstN(df, static_cast<size_t>(n - i))))))
      odd = true;
    store_rounded(value, zero, y + i, n - i);
  }
  return !odd;
}

void convert(const int32_t* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + L <= n; i += L) hn::StoreU(hn::ConvertTo(df, hn::LoadU(di, x + i)), df, y + i);
  for (; i < n; ++i) y[i] = static_cast<float>(x[i]);
}

void range(const float* x, int64_t n, float& low, float& high) {
  // The second operand is kept where the first is NaN.
  V least[4], most[4];
  for (int k = 0; k < 4; ++k) least[k] = hn::Set(df, low), most[k] = hn::Set(df, high);
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L)
    for (int k = 0; k < 4; ++k) {
      const V value = hn::LoadU(df, x + i + k * L);
      least[k] = hn::Min(value, least[k]), most[k] = hn::Max(value, most[k]);
    }
  low = hn::GetLane(hn::MinOfLanes(df, hn::Min(hn::Min(least[0], least[1]), hn::Min(least[2], least[3]))));
  high = hn::GetLane(hn::MaxOfLanes(df, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
  for (; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = high < x[i] ? x[i] : high;
  }
}

template <class Code>
void requantize(const int32_t* sums, int64_t rows, int64_t n, const int32_t* biases, const float* scales, float zero,
                Code* y, int64_t pitch) {
  for (int64_t row = 0; row < rows; ++row, sums += n, y += pitch) {
    const I bias = hn::Set(di, biases ? biases[row] : 0);
    const V scale = hn::Set(df, scales[row]);
    for (int64_t i = 0; i < n; i += L)
      store_rounded(hn::Mul(hn::ConvertTo(df, hn::Add(load_part(di, sums + i, n - i), bias)), scale), zero, y + i,
                    n - i);
  }
}

template <class Code>
void dequantize(const Code* x, int64_t n, float scale, float zero, float* y) {
  const hn::Rebind<Code, D> codes;
  for (int64_t i = 0; i < n; i += L) {
    const V value = hn::ConvertTo(df, hn::PromoteTo(di, load_part(codes, x + i, n - i)));
    store_up_to<AsF32>(hn::Mul(hn::Sub(value, hn::Set(df, zero)), hn::Set(df, scale)), bytes(y + i), n - i);
  }
}

template <class Code>
void centre(const Code* x, int64_t n, int32_t zero, int16_t* y) {
  int64_t i = 0;
  const auto shift = hn::Set(d16, static_cast<int16_t>(zero));
  const hn::Rebind<Code, decltype(d16)> codes;
  for (; i + L <= n; i += L) hn::StoreU(hn::Sub(hn::PromoteTo(d16, hn::LoadU(codes, x + i)), shift), d16, y + i);
  for (; i < n; ++i) y[i] = static_cast<int16_t>(x[i] - zero);
}

#if HWY_TARGET == HWY_AVX3
HWY_INLINE I pairs_of(I a, I b) { return I{_mm512_madd_epi16(a.raw, b.raw)}; }
/// Of the halves of blocks of four i32 that belong together.
HWY_INLINE void store_blocks(I low, I high, int32_t* to) {
  const __m512i first = _mm512_shuffle_i32x4(low.raw, high.raw, 0x44),
                last = _mm512_shuffle_i32x4(low.raw, high.raw, 0xEE);
  _mm512_storeu_si512(to, _mm512_shuffle_i32x4(first, first, 0xD8));
  _mm512_storeu_si512(to + L, _mm512_shuffle_i32x4(last, last, 0xD8));
}
#else
HWY_INLINE I pairs_of(I a, I b) { return I{_mm256_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE void store_blocks(I low, I high, int32_t* to) {
  hn::StoreU(I{_mm256_permute2x128_si256(low.raw, high.raw, 0x20)}, di, to);
  hn::StoreU(I{_mm256_permute2x128_si256(low.raw, high.raw, 0x31)}, di, to + L);
}
#endif

void weigh(const int16_t* const* x, const int16_t* weights, int64_t pairs, int64_t n, int32_t* sums) {
  const hn::Repartition<int16_t, DI> all16;
  for (int64_t j = 0; j < n; j += 4 * L) {
    I low[2] = {hn::Zero(di), hn::Zero(di)}, high[2] = {hn::Zero(di), hn::Zero(di)};
    for (int64_t p = 0; p < pairs; ++p) {
      int32_t both;
      memcpy(&both, weights + 2 * p, 4);
      const I by = hn::Set(di, both);
      for (int half = 0; half < 2; ++half) {
        const auto even = hn::LoadU(all16, x[2 * p] + j + half * 2 * L),
                   odd = hn::LoadU(all16, x[2 * p + 1] + j + half * 2 * L);
        low[half] = hn::Add(low[half], pairs_of(hn::BitCast(di, hn::InterleaveLower(all16, even, odd)), by));
        high[half] = hn::Add(high[half], pairs_of(hn::BitCast(di, hn::InterleaveUpper(all16, even, odd)), by));
      }
    }
    for (int half = 0; half < 2; ++half) store_blocks(low[half], high[half], sums + j + half * 2 * L);
  }
}

template <class Code>
constexpr CodesOf<Code> own{quantize<Code>, requantize<Code>, dequantize<Code>, centre<Code>};

const CodeLoops loops{own<uint8_t>, own<int8_t>, convert, range, weigh};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const CodeLoops& code_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
