#include "kernels/cpu/rows/row_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/row_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// sum of term(x[i], whether lane i exists) over the row, in four chains (fma takes 4 cycles), joined in one fixed
/// order.
template <class Add>
HWY_INLINE float sum_row(const float* x, int64_t n, Add add) {
  V sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L)
    for (int j = 0; j < 4; ++j) sums[j] = add(sums[j], hn::LoadU(df, x + i + j * L), hn::FirstN(df, L));
  for (int j = 0; i < n; i += L, ++j) {
    int64_t count = n - i < L ? n - i : L;
    sums[j] = add(sums[j], load_up_to<AsF32>(bytes(x + i), count), hn::FirstN(df, static_cast<size_t>(count)));
  }
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

/// y[i] = f(x[i], i), a vector at a time; `i` is the index for further operands, `count` the number of valid lanes.
template <class F>
HWY_INLINE void map_row(const float* x, float* y, int64_t n, F f) {
  for (int64_t i = 0; i < n; i += L) {
    int64_t count = n - i;
    store_up_to<AsF32>(f(load_up_to<AsF32>(bytes(x + i), count), i, count), bytes(y + i), count);
  }
}

float rms_norm(const float* x, const float* scale, float epsilon, float* y, int64_t n) {
  float squares = sum_row(x, n, [](V sum, V v, auto) HWY_ATTR { return hn::MulAdd(v, v, sum); });
  float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon);
  map_row(x, y, n, [=](V v, int64_t i, int64_t count) HWY_ATTR {
    return hn::Mul(hn::Mul(v, hn::Set(df, inverse)), load_up_to<AsF32>(bytes(scale + i), count));
  });
  return inverse;
}

float layer_norm(const float* x, const float* scale, const float* bias, float epsilon, float* y, int64_t n,
                 float& mean) {
  float middle = sum_row(x, n, [](V sum, V v, auto) HWY_ATTR { return hn::Add(v, sum); }) / static_cast<float>(n);
  float squares = sum_row(x, n, [=](V sum, V v, auto exists) HWY_ATTR {
    V apart = hn::IfThenElseZero(exists, hn::Sub(v, hn::Set(df, middle)));
    return hn::MulAdd(apart, apart, sum);
  });
  float inverse = 1.0f / __builtin_sqrtf(squares / static_cast<float>(n) + epsilon);
  map_row(x, y, n, [=](V v, int64_t i, int64_t count) HWY_ATTR {
    V apart = hn::Mul(hn::Sub(v, hn::Set(df, middle)), hn::Set(df, inverse));
    V shift = bias ? load_up_to<AsF32>(bytes(bias + i), count) : hn::Zero(df);
    return hn::MulAdd(apart, load_up_to<AsF32>(bytes(scale + i), count), shift);
  });
  mean = middle;
  return inverse;
}

void softmax(const float* x, float* y, int64_t n) {
  const V lowest = hn::Set(df, -HUGE_VALF);
  V most = lowest;
  for (int64_t i = 0; i < n; i += L) {
    int64_t count = n - i;
    V v = load_up_to<AsF32>(bytes(x + i), count);
    if (count < L) v = hn::IfThenElse(hn::FirstN(df, static_cast<size_t>(count)), v, lowest);
    most = hn::Max(most, v);
  }
  V largest = hn::MaxOfLanes(df, most);
  map_row(x, y, n, [=](V v, int64_t, int64_t) HWY_ATTR { return exp(hn::Sub(v, largest)); });
  float total = sum_row(y, n, [](V sum, V v, auto) HWY_ATTR { return hn::Add(v, sum); });
  V share = hn::Set(df, 1.0f / total);
  map_row(y, y, n, [=](V v, int64_t, int64_t) HWY_ATTR { return hn::Mul(v, share); });
}

void rope(const float* x, const float* cos, const float* sin, float* y, int64_t d, int64_t z, bool interleaved) {
  if (interleaved) {
    int64_t i = 0;
    for (; i + L <= z; i += L) {
      V a, b, c = hn::LoadU(df, cos + i), s = hn::LoadU(df, sin + i);
      hn::LoadInterleaved2(df, x + 2 * i, a, b);
      V first = hn::MulSub(a, c, hn::Mul(b, s)), second = hn::MulAdd(b, c, hn::Mul(a, s));
      hn::StoreInterleaved2(first, second, df, y + 2 * i);
    }
    for (; i < z; ++i) {
      float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = a * cos[i] - b * sin[i];
      y[2 * i + 1] = b * cos[i] + a * sin[i];
    }
  } else {
    for (int64_t i = 0; i < z; i += L) {
      int64_t count = z - i;
      V a = load_up_to<AsF32>(bytes(x + i), count), b = load_up_to<AsF32>(bytes(x + z + i), count);
      V c = load_up_to<AsF32>(bytes(cos + i), count), s = load_up_to<AsF32>(bytes(sin + i), count);
      store_up_to<AsF32>(hn::MulSub(a, c, hn::Mul(b, s)), bytes(y + i), count);
      store_up_to<AsF32>(hn::MulAdd(b, c, hn::Mul(a, s)), bytes(y + z + i), count);
    }
  }
  if (y != x && 2 * z < d) memcpy(y + 2 * z, x + 2 * z, static_cast<size_t>(d - 2 * z) * sizeof(float));
}

const RowLoops loops{rms_norm, layer_norm, softmax, rope};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const RowLoops& row_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
