#include "kernels/cpu/rows/reduce_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows/reduce_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

template <bool squares>
HWY_INLINE V add_term(V sum, V x) {
  return squares ? hn::MulAdd(x, x, sum) : hn::Add(sum, x);
}

/// In four chains, since an addition takes 4 cycles.
template <bool squares>
float total(const float* x, int64_t n) {
  V sums[4] = {hn::Zero(df), hn::Zero(df), hn::Zero(df), hn::Zero(df)};
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L)
    for (int j = 0; j < 4; ++j) sums[j] = add_term<squares>(sums[j], hn::LoadU(df, x + i + j * L));
  for (int j = 0; i < n; i += L, ++j) sums[j] = add_term<squares>(sums[j], load_up_to<AsF32>(bytes(x + i), n - i));
  return sum_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
}

template <bool squares>
void add_to(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += L)
    store_up_to<AsF32>(
        add_term<squares>(load_up_to<AsF32>(bytes(y + i), n - i), load_up_to<AsF32>(bytes(x + i), n - i)),
        bytes(y + i), n - i);
}

const ReduceLoops loops{{total<false>, total<true>}, {add_to<false>, add_to<true>}};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const ReduceLoops& reduce_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
