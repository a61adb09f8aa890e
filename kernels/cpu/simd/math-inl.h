// Per-target elementary functions on vectors of f32. Lanes are independent, so a value has the same bits in any
// position. Coefficients are minimax fits (relative error, Remez) made for this file.
#if defined(PLAIT_KERNELS_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_MATH_INL_H
#undef PLAIT_KERNELS_CPU_MATH_INL_H
#else
#define PLAIT_KERNELS_CPU_MATH_INL_H
#endif

#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// c[0] + c[1] x + ... by Horner's rule.
template <int N>
HWY_INLINE V polynomial(V x, const float (&c)[N]) {
  V sum = hn::Set(df, c[N - 1]);
#pragma GCC unroll 16
  for (int i = N - 2; i >= 0; --i) sum = hn::MulAdd(sum, x, hn::Set(df, c[i]));
  return sum;
}

/// 2^n for an integer-valued n in [-126, 127].
HWY_INLINE V power_of_two(hn::Vec<DI> n) {
  return hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

/// e^x within 1 ulp, subnormal results included; 0 below -104, infinity above 88.73, NaN of NaN.
HWY_INLINE V exp(V x) {
  // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first with 9 bits, so that n * part is exact.
  constexpr float terms[] = {0.4999999955f, 0.1666657681f, 0.04166685422f, 0.008363226285f, 0.00139013373f};
  V bounded = hn::Max(hn::Min(x, hn::Set(df, 89.0f)), hn::Set(df, -105.0f));
  V n = hn::Round(hn::Mul(bounded, hn::Set(df, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), bounded);
  r = hn::NegMulAdd(n, hn::Set(df, -2.12194440e-4f), r);
  V tail = hn::MulAdd(hn::Mul(r, r), polynomial(r, terms), r);  // e^r - 1
  // 2^n in two factors: n from -152 to 129 does not fit one float's exponent.
  auto whole = hn::ConvertTo(di, n);
  auto half = hn::ShiftRight<1>(whole);
  V first = power_of_two(half), second = power_of_two(hn::Sub(whole, half));
  V result = hn::Mul(hn::MulAdd(tail, first, first), second);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE V sigmoid(V x) {
  V one = hn::Set(df, 1.0f);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

/// x sigmoid(x).
HWY_INLINE V silu(V x) {
  V bounded = hn::Max(x, hn::Set(df, -88.0f));  // exp(-x) stays finite: -inf / inf would be NaN
  V result = hn::Div(x, hn::Add(hn::Set(df, 1.0f), exp(hn::Neg(bounded))));
  return hn::IfThenElse(hn::Eq(x, hn::Set(df, -HUGE_VALF)), hn::Neg(hn::Zero(df)),
                        hn::IfThenElse(hn::IsNaN(x), x, result));
}

HWY_INLINE V tanh(V x) {
  constexpr float terms[] = {-0.3333332895f, 0.1333277022f, -0.05385097388f, 0.02099745417f, -0.006097081889f};
  V size = hn::Abs(x), square = hn::Mul(x, x);
  V small = hn::MulAdd(hn::Mul(x, square), polynomial(square, terms), x);
  V one = hn::Set(df, 1.0f);
  V large = hn::Sub(one, hn::Div(hn::Set(df, 2.0f), hn::Add(exp(hn::Add(size, size)), one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(df, 0.625f)), small, hn::CopySign(large, x));
}

/// The normal distribution's tail P(X > a) for a >= 0, to a few ulp: exp(-a^2 / 2) times a polynomial in 1 / (1 + 0.3
/// a).
HWY_INLINE V normal_tail(V a) {
  constexpr float terms[] = {5.074334825e-7f, 0.1196748561f,  0.1196909741f,   0.1095525965f,
                             0.08085900252f,  0.09025745964f, -0.06997480214f, 0.1817444354f,
                             -0.2214247984f,  0.1097922068f,  -0.02017243947f};
  a = hn::Min(a, hn::Set(df, 15.0f));  // the tail there is 4e-51: zero in f32
  V one = hn::Set(df, 1.0f), half = hn::Set(df, 0.5f);
  V t = hn::Div(one, hn::MulAdd(a, hn::Set(df, 0.3f), one));
  // exp(-a^2/2) with a^2 in two parts: its rounding error of up to 6e-8 * 100 would be the result's relative error.
  V square = hn::Mul(a, a), rest = hn::MulSub(a, a, square);
  V power = exp(hn::Neg(hn::Mul(square, half)));
  power = hn::NegMulAdd(hn::Mul(rest, half), power, power);
  return hn::Mul(power, polynomial(t, terms));
}

HWY_INLINE V erf(V x) {
  constexpr float terms[] = {1.128379166f,    -0.3761262582f,   0.1128358514f,  -0.02685381157f,
                             0.005188327052f, -0.0008010188451f, 7.853845301e-5f};
  V size = hn::Abs(x);
  V small = hn::Mul(x, polynomial(hn::Mul(x, x), terms));
  V tail = normal_tail(hn::Mul(size, hn::Set(df, 1.41421356f)));
  V large = hn::NegMulAdd(hn::Set(df, 2.0f), tail, hn::Set(df, 1.0f));
  V result = hn::IfThenElse(hn::Lt(size, hn::Set(df, 1.0f)), small, hn::CopySign(large, x));
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

/// x P(X < x) with the normal distribution's P: Gelu, approximate = "none". No cancellation on the negative side.
HWY_INLINE V gelu(V x) {
  V tail = normal_tail(hn::Abs(x));
  V share = hn::IfThenElse(hn::Lt(x, hn::Zero(df)), tail, hn::Sub(hn::Set(df, 1.0f), tail));
  V bounded = hn::IfThenElse(hn::Lt(x, hn::Set(df, -20.0f)), hn::Set(df, -20.0f), x);  // -inf * 0
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(bounded, share));
}

/// 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + exp(-2 u)), which does not cancel.
HWY_INLINE V gelu_tanh(V x) {
  V bounded = hn::IfThenElse(hn::Lt(x, hn::Set(df, -10.0f)), hn::Set(df, -10.0f), x);  // there it is below -1e-37
  V inner = hn::MulAdd(hn::Mul(hn::Mul(bounded, bounded), bounded), hn::Set(df, 0.044715f), bounded);
  V power = exp(hn::Mul(inner, hn::Set(df, -1.5957691216f)));
  return hn::Div(bounded, hn::Add(hn::Set(df, 1.0f), power));
}

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#endif
