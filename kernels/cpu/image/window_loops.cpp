#include "kernels/cpu/image/window_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/image/window_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// The n <= L elements from x on, `step` apart.
HWY_INLINE V strided(const float* x, int64_t step, int64_t n) {
  if (step == 1) return load_up_to<AsF32>(bytes(x), n);
  if (step == 2 && n > L) {  // with a further one, whole vectors are there
    V even, odd;
    hn::LoadInterleaved2(df, x, even, odd);
    return even;
  }
  HWY_ALIGN float gathered[L] = {};
  for (int64_t i = 0; i < n && i < L; ++i) gathered[i] = x[i * step];
  return hn::Load(df, gathered);
}

void add_scaled(const float* x, int64_t step, float weight, float* y, int64_t n) {
  const V w = hn::Set(df, weight);
  for (int64_t i = 0; i < n; i += L)
    store_up_to<AsF32>(hn::MulAdd(w, strided(x + i * step, step, n - i), load_up_to<AsF32>(bytes(y + i), n - i)),
                       bytes(y + i), n - i);
}

void greater(const float* x, int64_t step, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += L) {
    const V a = strided(x + i * step, step, n - i), b = load_up_to<AsF32>(bytes(y + i), n - i);
    store_up_to<AsF32>(hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b), bytes(y + i), n - i);
  }
}

const WindowLoops loops{add_scaled, greater};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const WindowLoops& window_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
