#include "kernels/cpu/image/channel_loops.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/image/channel_loops.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

enum class Window { depthwise, mean, greatest };

template <bool partial>
HWY_INLINE V channels_at(const float* from, int64_t count) {
  if constexpr (partial) return load_some<AsF32>(bytes(from), count);
  else return hn::LoadU(df, from);
}

/// N results at channel c: each weight is loaded once for all of them.
template <Window W, int N, bool partial>
HWY_INLINE void run_results(const WindowRun& run, int64_t first, int64_t c) {
  const int64_t count = run.channels - c;
  V sums[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) sums[i] = W == Window::greatest ? hn::Set(df, -HUGE_VALF) : hn::Zero(df);
  for (int64_t tap = 0; tap < run.taps; ++tap) {
    const float* from = run.from[tap] + first * run.step + c;
    V weight = hn::Zero(df);
    if constexpr (W == Window::depthwise) weight = channels_at<partial>(run.weights[tap] + c, count);
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      const V x = channels_at<partial>(from + i * run.step, count);
      if constexpr (W == Window::depthwise) sums[i] = hn::MulAdd(x, weight, sums[i]);
      if constexpr (W == Window::mean) sums[i] = hn::Add(sums[i], x);
      if constexpr (W == Window::greatest)
        sums[i] = hn::IfThenElse(hn::Or(hn::Gt(x, sums[i]), hn::IsNaN(x)), x, sums[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    if constexpr (W == Window::mean) sums[i] = hn::Mul(sums[i], hn::Set(df, run.scale));
    float* to = run.y + (first + i) * run.channels + c;
    if constexpr (partial) store_some<AsF32>(sums[i], bytes(to), count);
    else hn::StoreU(sums[i], df, to);
  }
}

template <Window W, int N>
HWY_INLINE void run_channels(const WindowRun& run, int64_t first) {
  int64_t c = 0;
  for (; c + L <= run.channels; c += L) run_results<W, N, false>(run, first, c);
  if (c < run.channels) run_results<W, N, true>(run, first, c);
}

template <Window W>
void run_window(const WindowRun& run) {
  int64_t first = 0;
  for (; first + 8 <= run.results; first += 8) run_channels<W, 8>(run, first);
  for (; first + 4 <= run.results; first += 4) run_channels<W, 4>(run, first);
  for (; first < run.results; ++first) run_channels<W, 1>(run, first);
}

const ChannelLoops loops{run_window<Window::depthwise>, run_window<Window::mean>, run_window<Window::greatest>};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const ChannelLoops& channel_loops(Isa isa) { return PLAIT_OF_ISA(isa, loops); }

}  // namespace plait::cpu
#endif
