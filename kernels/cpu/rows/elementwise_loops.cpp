#include "kernels/cpu/rows/elementwise_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/elementwise_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

template <Unary F>
HWY_INLINE V apply(V x) {
  if constexpr (F == Unary::exp) return exp(x);
  if constexpr (F == Unary::tanh) return tanh(x);
  if constexpr (F == Unary::sigmoid) return sigmoid(x);
  if constexpr (F == Unary::erf) return erf(x);
  if constexpr (F == Unary::gelu) return gelu(x);
  if constexpr (F == Unary::gelu_tanh) return gelu_tanh(x);
  if constexpr (F == Unary::silu) return silu(x);
  if constexpr (F == Unary::relu) return hn::IfThenElse(hn::Lt(x, hn::Zero(df)), hn::Zero(df), x);
  if constexpr (F == Unary::sqrt) return hn::Sqrt(x);
  if constexpr (F == Unary::neg) return hn::Neg(x);
  if constexpr (F == Unary::identity) return x;
  if constexpr (F == Unary::abs) return hn::Abs(x);
  if constexpr (F == Unary::reciprocal) return hn::Div(hn::Set(df, 1.0f), x);
  if constexpr (F == Unary::hard_swish) {
    const V share = hn::MulAdd(x, hn::Set(df, 1.0f / 6), hn::Set(df, 0.5f));
    return hn::Mul(x, hn::Min(hn::Max(share, hn::Zero(df)), hn::Set(df, 1.0f)));
  }
}

template <Binary F>
HWY_INLINE V apply(V a, V b) {
  if constexpr (F == Binary::add) return hn::Add(a, b);
  if constexpr (F == Binary::sub) return hn::Sub(a, b);
  if constexpr (F == Binary::mul) return hn::Mul(a, b);
  if constexpr (F == Binary::div) return hn::Div(a, b);
  // The instructions return b if one is NaN.
  if constexpr (F == Binary::max) return hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b));
  if constexpr (F == Binary::min) return hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b));
  if constexpr (F == Binary::prelu) return hn::IfThenElse(hn::Lt(a, hn::Zero(df)), hn::Mul(a, b), a);
}

template <Unary F>
void unary(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + L <= n; i += L) hn::StoreU(apply<F>(hn::LoadU(df, x + i)), df, y + i);
  if (i < n) store_some<AsF32>(apply<F>(load_some<AsF32>(bytes(x + i), n - i)), bytes(y + i), n - i);
}

template <Unary F>
void gate(const float* x, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + L <= n; i += L) hn::StoreU(hn::Mul(apply<F>(hn::LoadU(df, x + i)), hn::LoadU(df, y + i)), df, y + i);
  if (i == n) return;
  V rest = apply<F>(load_some<AsF32>(bytes(x + i), n - i));
  store_some<AsF32>(hn::Mul(rest, load_some<AsF32>(bytes(y + i), n - i)), bytes(y + i), n - i);
}

template <Binary F>
void binary(const float* a, int64_t a_step, const float* b, int64_t b_step, float* y, int64_t n) {
  V same_a = a_step ? hn::Zero(df) : hn::Set(df, *a), same_b = b_step ? hn::Zero(df) : hn::Set(df, *b);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    V left = a_step ? hn::LoadU(df, a + i) : same_a, right = b_step ? hn::LoadU(df, b + i) : same_b;
    hn::StoreU(apply<F>(left, right), df, y + i);
  }
  if (i == n) return;
  V left = a_step ? load_some<AsF32>(bytes(a + i), n - i) : same_a;
  V right = b_step ? load_some<AsF32>(bytes(b + i), n - i) : same_b;
  store_some<AsF32>(apply<F>(left, right), bytes(y + i), n - i);
}

template <class T>
void widen(const uint8_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; i += L)
    store_up_to<AsF32>(load_up_to<T>(from + i * T::size, n - i), bytes(to + i), n - i);
}

template <class T>
void narrow(const float* from, uint8_t* to, int64_t n) {
  for (int64_t i = 0; i < n; i += L)
    store_up_to<T>(load_up_to<AsF32>(bytes(from + i), n - i), to + i * T::size, n - i);
}

#define PLAIT_EACH_UNARY(f)                                                                                    \
  {                                                                                                            \
    f<Unary::exp>, f<Unary::tanh>, f<Unary::sigmoid>, f<Unary::erf>, f<Unary::gelu>, f<Unary::gelu_tanh>,      \
        f<Unary::silu>, f<Unary::relu>, f<Unary::sqrt>, f<Unary::neg>, f<Unary::identity>, f<Unary::abs>,      \
        f<Unary::reciprocal>, f<Unary::hard_swish>                                                             \
  }
const ElementwiseLoops loops{
    PLAIT_EACH_UNARY(unary),
    {binary<Binary::add>, binary<Binary::sub>, binary<Binary::mul>, binary<Binary::div>, binary<Binary::max>,
     binary<Binary::min>, binary<Binary::prelu>},
    PLAIT_EACH_UNARY(gate),
    widen<AsBF16>, widen<AsF16>, narrow<AsBF16>, narrow<AsF16>};
#undef PLAIT_EACH_UNARY

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const ElementwiseLoops& elementwise_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
