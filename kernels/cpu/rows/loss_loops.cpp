#include "kernels/cpu/rows/loss_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/loss_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

HWY_INLINE V logits_of(V x, LogitScale scale) {
  if (scale.cap == 0) return hn::Mul(x, hn::Set(df, scale.scale));
  return hn::Mul(hn::Set(df, scale.cap), tanh(hn::Mul(x, hn::Set(df, scale.scale / scale.cap))));
}

void to_logits(float* x, const float* bias, int64_t n, LogitScale scale) {
  if (!bias && scale.scale == 1 && scale.cap == 0) return;
  for (int64_t i = 0; i < n; i += L) {
    V sum = load_up_to<AsF32>(bytes(x + i), n - i);
    if (bias) sum = hn::Add(sum, load_up_to<AsF32>(bytes(bias + i), n - i));
    store_up_to<AsF32>(logits_of(sum, scale), bytes(x + i), n - i);
  }
}

/// d logit / d product, by the logit.
HWY_INLINE V slope_of(V logit, LogitScale scale) {
  const V whole = hn::Set(df, scale.scale);
  if (scale.cap == 0) return whole;
  const V part = hn::Mul(logit, hn::Set(df, 1 / scale.cap));
  return hn::Mul(whole, hn::NegMulAdd(part, part, hn::Set(df, 1.0f)));
}

/// Updates `most` with x, and rescales `sum`.
void raise_most(const float* x, int64_t n, float& most, float& sum) {
  V largest = hn::Set(df, most);
  for (int64_t i = 0; i < n; i += L) {
    const auto exists = hn::FirstN(df, static_cast<size_t>(n - i < L ? n - i : L));
    largest = hn::IfThenElse(exists, hn::Max(largest, load_up_to<AsF32>(bytes(x + i), n - i)), largest);
  }
  const float now = hn::GetLane(hn::MaxOfLanes(df, largest));
  // Empty so far: avoids e^(-inf - now) in the polynomial.
  sum = sum == 0 ? 0 : sum * __builtin_expf(most - now);
  most = now;
}

void take_in(const float* x, int64_t n, float& most, float& sum) {
  raise_most(x, n, most, sum);
  V sums = hn::Zero(df);
  for (int64_t i = 0; i < n; i += L) {
    const auto exists = hn::FirstN(df, static_cast<size_t>(n - i < L ? n - i : L));
    const V below = exp(hn::Sub(load_up_to<AsF32>(bytes(x + i), n - i), hn::Set(df, most)));
    sums = hn::Add(sums, hn::IfThenElseZero(exists, below));
  }
  sum += sum_lanes(sums);
}

void weigh(float* x, int64_t n, LogitScale scale, float& most, float& sum) {
  raise_most(x, n, most, sum);
  V sums = hn::Zero(df);
  for (int64_t i = 0; i < n; i += L) {
    const auto exists = hn::FirstN(df, static_cast<size_t>(n - i < L ? n - i : L));
    const V logit = load_up_to<AsF32>(bytes(x + i), n - i), below = exp(hn::Sub(logit, hn::Set(df, most)));
    sums = hn::Add(sums, hn::IfThenElseZero(exists, below));
    store_up_to<AsF32>(hn::Mul(below, slope_of(logit, scale)), bytes(x + i), n - i);
  }
  sum += sum_lanes(sums);
}

void changes(float* x, int64_t n, LogitScale scale, float logsumexp, float dloss) {
  for (int64_t i = 0; i < n; i += L) {
    const V logit = load_up_to<AsF32>(bytes(x + i), n - i);
    const V slope = hn::Mul(slope_of(logit, scale), hn::Set(df, dloss));
    store_up_to<AsF32>(hn::Mul(slope, exp(hn::Sub(logit, hn::Set(df, logsumexp)))), bytes(x + i), n - i);
  }
}

const LossLoops loops{to_logits, take_in, weigh, changes};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const LossLoops& loss_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
