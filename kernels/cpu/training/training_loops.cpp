#include "kernels/cpu/training/training_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/training/training_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

HWY_INLINE V set(float x) { return hn::Set(df, x); }
HWY_INLINE V load(const float* p, int64_t count) { return load_up_to<AsF32>(bytes(p), count); }
HWY_INLINE void store(V x, float* p, int64_t count) { store_up_to<AsF32>(x, bytes(p), count); }

void adamw(const float* const from[4], float* const to[4], int64_t n, const AdamStep& step) {
  const AdamStep s = step;
  for (int64_t i = 0; i < n; i += L) {
    const int64_t count = n - i;
    const V w = load(from[0] + i, count), g = hn::Mul(load(from[3] + i, count), set(s.scale));
    const V first = hn::MulAdd(set(s.rest1), g, hn::Mul(set(s.beta1), load(from[1] + i, count)));
    const V second = hn::MulAdd(hn::Mul(set(s.rest2), g), g, hn::Mul(set(s.beta2), load(from[2] + i, count)));
    const V size = hn::Add(hn::Sqrt(hn::Mul(second, set(s.inverse2))), set(s.epsilon));
    // Subtracts the whole change at once: 1 - decay would be rounded to a unit of 6e-8, losing a decay of 1e-7.
    const V change = hn::MulAdd(set(s.decay), w, hn::Div(hn::Mul(set(s.rate), first), size));
    store(hn::Sub(w, change), to[0] + i, count);
    store(first, to[1] + i, count);
    store(second, to[2] + i, count);
    store(hn::Zero(df), to[3] + i, count);
  }
}

void sgd(const float* const from[3], float* const to[3], int64_t n, const SgdStep& step) {
  const SgdStep s = step;
  for (int64_t i = 0; i < n; i += L) {
    const int64_t count = n - i;
    const V w = load(from[0] + i, count), g = hn::Mul(load(from[2] + i, count), set(s.scale));
    const V velocity = hn::MulAdd(set(s.momentum), load(from[1] + i, count), g);
    store(hn::NegMulAdd(set(s.rate), hn::MulAdd(set(s.decay), w, velocity), w), to[0] + i, count);
    store(velocity, to[1] + i, count);
    store(hn::Zero(df), to[2] + i, count);
  }
}

HWY_INLINE V factored(const float* gradient, const float* column, int64_t count, const FactoredRow& of) {
  const V mean = hn::Max(hn::Mul(set(of.row), load(column, count)), set(of.floor));
  return hn::Div(hn::Mul(load(gradient, count), set(of.scale)), hn::Sqrt(mean));
}

float factored_squares(const float* gradient, const float* column, int64_t n, const FactoredRow& row) {
  const FactoredRow of = row;
  V sum = hn::Zero(df);
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const V u = factored(gradient + i, column + i, L, of);
    sum = hn::MulAdd(u, u, sum);
  }
  if (i < n) {  // padding lanes divide by only the floor, which may be 0
    const V u =
        hn::IfThenElseZero(hn::FirstN(df, static_cast<size_t>(n - i)), factored(gradient + i, column + i, n - i, of));
    sum = hn::MulAdd(u, u, sum);
  }
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

void factored_step(const float* const from[2], const float* column, float* const to[2], int64_t n,
                   const FactoredRow& row) {
  const FactoredRow of = row;
  for (int64_t i = 0; i < n; i += L) {
    const int64_t count = n - i;
    const V w = load(from[0] + i, count), u = factored(from[1] + i, column + i, count, of);
    store(hn::Sub(w, hn::MulAdd(set(of.shrink), w, hn::Mul(set(of.step), u))), to[0] + i, count);
    store(hn::Zero(df), to[1] + i, count);
  }
}

/// x in [low, high]; NaN stays.
HWY_INLINE V within(V x, float low, float high) {
  x = hn::IfThenElse(hn::Lt(x, set(low)), set(low), x);
  return hn::IfThenElse(hn::Gt(x, set(high)), set(high), x);
}

/// sigmoid(x) sigmoid(-x), without cancellation.
HWY_INLINE V sigmoid_slope(V x) {
  const V power = exp(hn::Neg(hn::Abs(x))), sum = hn::Add(set(1), power);
  return hn::Div(power, hn::Mul(sum, sum));
}

template <Derivative F>
HWY_INLINE V slope(V x) {
  if constexpr (F == Derivative::relu) return hn::IfThenElseZero(hn::Gt(x, hn::Zero(df)), set(1));
  if constexpr (F == Derivative::tanh) return hn::Mul(set(4), sigmoid_slope(hn::Add(x, x)));
  if constexpr (F == Derivative::sigmoid) return sigmoid_slope(x);
  if constexpr (F == Derivative::softplus) return sigmoid(x);
  if constexpr (F == Derivative::erf) return hn::Mul(set(1.128379167f), exp(hn::Neg(hn::Mul(x, x))));
  if constexpr (F == Derivative::silu) {
    x = within(x, -110, 110);  // beyond, it is 0 or 1
    return hn::MulAdd(x, sigmoid_slope(x), sigmoid(x));
  }
  if constexpr (F == Derivative::gelu) {  // P(X < x) + x p(x) of the normal distribution
    x = within(x, -20, 20);
    const V tail = normal_tail(hn::Abs(x));
    const V share = hn::IfThenElse(hn::Lt(x, hn::Zero(df)), tail, hn::Sub(set(1), tail));
    const V density = hn::Mul(set(0.3989422804f), exp(hn::Mul(hn::Mul(x, x), set(-0.5f))));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::MulAdd(x, density, share));
  }
  if constexpr (F == Derivative::gelu_tanh) {  // of x sigmoid(v), v = 2 sqrt(2 / pi) (x + 0.044715 x^3)
    x = within(x, -15, 15);
    const V square = hn::Mul(x, x);
    const V v = hn::Mul(set(1.5957691216f), hn::Mul(x, hn::MulAdd(square, set(0.044715f), set(1))));
    const V dv = hn::Mul(set(1.5957691216f), hn::MulAdd(square, set(0.134145f), set(1)));
    return hn::MulAdd(hn::Mul(x, dv), sigmoid_slope(v), sigmoid(v));
  }
}

template <Derivative F>
void unary_back(const float* x, const float* dy, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += L) store(hn::Mul(load(dy + i, n - i), slope<F>(load(x + i, n - i))), y + i, n - i);
}

/// As in the reference: with z = (x - mean) / deviation and g = scale dy, dx = (g - mean(g) - z mean(g z)) /
/// deviation, where an RMSNorm has no means of x and g.
template <bool centre>
void norm_back(const float* x, const float* scale, const float* dy, float epsilon, float* dx, float* dscale,
               float* dbias, int64_t n) {
  const float share = 1.0f / static_cast<float>(n);
  V mean = hn::Zero(df);
  if constexpr (centre) {
    V sum = hn::Zero(df);
    for (int64_t i = 0; i < n; i += L) sum = hn::Add(sum, load(x + i, n - i));
    mean = set(sum_lanes(sum) * share);
  }
  V squares = hn::Zero(df), sum_g = hn::Zero(df), sum_gx = hn::Zero(df);
  for (int64_t i = 0; i < n; i += L) {
    const int64_t count = n - i;
    V apart = load(x + i, count);
    if constexpr (centre) {
      apart = hn::Sub(apart, mean);
      if (count < L) apart = hn::IfThenElseZero(hn::FirstN(df, static_cast<size_t>(count)), apart);
    }
    const V g = hn::Mul(load(scale + i, count), load(dy + i, count));
    squares = hn::MulAdd(apart, apart, squares);
    sum_gx = hn::MulAdd(g, apart, sum_gx);
    if constexpr (centre) sum_g = hn::Add(sum_g, g);
  }
  const float inverse = 1.0f / __builtin_sqrtf(sum_lanes(squares) * share + epsilon);
  const V over = set(inverse), mean_g = set(sum_lanes(sum_g) * share),
          mean_gz = set(sum_lanes(sum_gx) * share * inverse);
  for (int64_t i = 0; i < n; i += L) {
    const int64_t count = n - i;
    const V from = load(dy + i, count), z = hn::Mul(hn::Sub(load(x + i, count), mean), over);
    V g = hn::Mul(load(scale + i, count), from);
    if constexpr (centre) g = hn::Sub(g, mean_g);
    store(hn::MulAdd(from, z, load(dscale + i, count)), dscale + i, count);
    if constexpr (centre) store(hn::Add(from, load(dbias + i, count)), dbias + i, count);
    store(hn::Mul(hn::NegMulAdd(z, mean_gz, g), over), dx + i, count);
  }
}

void softmax_back(const float* y, const float* dy, float* dx, int64_t n) {
  V sums = hn::Zero(df);
  for (int64_t i = 0; i < n; i += L) sums = hn::MulAdd(load(y + i, n - i), load(dy + i, n - i), sums);
  const V sum = set(sum_lanes(sums));
  for (int64_t i = 0; i < n; i += L)
    store(hn::Mul(load(y + i, n - i), hn::Sub(load(dy + i, n - i), sum)), dx + i, n - i);
}

const TrainingLoops loops{
    adamw,
    sgd,
    factored_squares,
    factored_step,
    {unary_back<Derivative::relu>, unary_back<Derivative::tanh>, unary_back<Derivative::sigmoid>,
     unary_back<Derivative::softplus>, unary_back<Derivative::erf>, unary_back<Derivative::silu>,
     unary_back<Derivative::gelu>, unary_back<Derivative::gelu_tanh>},
    norm_back<false>,
    norm_back<true>,
    softmax_back};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const TrainingLoops& training_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
