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
  const hn::Rebind<Code, D> codes;
  const V held = hn::Min(hn::Max(x, hn::Set(df, -1024.0f)), hn::Set(df, 1024.0f));  // far beyond all codes
  const I whole = hn::Add(hn::NearestInt(held), hn::Set(di, static_cast<int32_t>(zero)));
  if (HWY_LIKELY(count >= L)) return hn::StoreU(hn::DemoteTo(codes, whole), codes, y);
  Code all[L];
  hn::StoreU(hn::DemoteTo(codes, whole), codes, all);
  for (int64_t i = 0; i < count; ++i) y[i] = all[i];
}

template <class Code>
bool quantize(const float* x, int64_t n, float scale, float zero, Code* y) {
  bool odd = false;
  const V by = hn::Set(df, scale);
  for (int64_t i = 0; i < n; i += L) {
    const V value = hn::Div(load_up_to<AsF32>(bytes(x + i), n - i), by);
    if (HWY_UNLIKELY(!hn::AllFalse(df, hn::And(hn::IsNaN(value), hn::FirstN(df, static_cast<size_t>(n - i))))))
      odd = true;
    store_rounded(value, zero, y + i, n - i);
  }
  return !odd;
}

template <class Code>
void requantize(const int32_t* sums, int64_t n, int32_t bias, float scale, float zero, Code* y) {
  for (int64_t i = 0; i < n; i += L) {
    const I sum = load_part(di, sums + i, n - i);
    store_rounded(hn::Mul(hn::ConvertTo(df, hn::Add(sum, hn::Set(di, bias))), hn::Set(df, scale)), zero, y + i,
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
void centre(const Code* x, int64_t step, int64_t n, int32_t zero, int16_t* y) {
  int64_t i = 0;
  const auto shift = hn::Set(d16, static_cast<int16_t>(zero));
  const hn::Rebind<Code, decltype(d16)> codes;
  for (; step == 1 && i + L <= n; i += L)
    hn::StoreU(hn::Sub(hn::PromoteTo(d16, hn::LoadU(codes, x + i)), shift), d16, y + i);
  for (; i < n; ++i) y[i] = static_cast<int16_t>(x[i * step] - zero);
}

void interleave(const int16_t* even, const int16_t* odd, int64_t n, int16_t* to) {
  int64_t j = 0;
  const hn::Rebind<uint16_t, D> u16;
  for (; j + L <= n; j += L) {
    const auto low = hn::PromoteTo(du, hn::LoadU(u16, reinterpret_cast<const uint16_t*>(even + j)));
    const auto high = hn::PromoteTo(du, hn::LoadU(u16, reinterpret_cast<const uint16_t*>(odd + j)));
    hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), du, reinterpret_cast<uint32_t*>(to + 2 * j));
  }
  for (; j < n; ++j) to[2 * j] = even[j], to[2 * j + 1] = odd[j];
}

void add_scaled(const int16_t* x, int32_t weight, int64_t n, int32_t* sums) {
  int64_t j = 0;
  const I by = hn::Set(di, weight);
  for (; j + L <= n; j += L)
    hn::StoreU(hn::Add(hn::LoadU(di, sums + j), hn::Mul(hn::PromoteTo(di, hn::LoadU(d16, x + j)), by)), di, sums + j);
  for (; j < n; ++j) sums[j] += x[j] * weight;
}

template <class Code>
constexpr CodesOf<Code> own{quantize<Code>, requantize<Code>, dequantize<Code>, centre<Code>};

const CodeLoops loops{own<uint8_t>, own<int8_t>, interleave, add_scaled};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const CodeLoops& code_loops(Isa isa) { return isa == Isa::avx2 ? N_AVX2::loops : N_AVX3::loops; }

}  // namespace plait::cpu
#endif
