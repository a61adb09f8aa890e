// MaxPool and AveragePool of f32, row by row, and their global forms.
#include <algorithm>
#include <limits>

#include "kernels/cpu/image/register.h"
#include "kernels/cpu/image/window_loops.h"
#include "kernels/cpu/image/window_rows.h"
#include "kernels/cpu/rows/reduce_loops.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct PoolState : KernelState {
  explicit PoolState(const NodeInfo& node)
      : windows(node.attributes), counts_padding(node.attributes.integer("count_include_pad", 0) != 0) {}
  WindowAttributes windows;
  bool counts_padding;
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) { return std::make_shared<PoolState>(node); }

bool accepts(const NodeInfo& node) {
  return is_f32(node, 0) && (node.outputs.size() < 2 || node.outputs[1].dtype == DType::none);
}

/// How many taps of the windows along an axis are inside the image, or inside its padding too.
std::vector<float> tap_counts(const WindowAxis& axis, bool with_padding) {
  std::vector<float> out(static_cast<size_t>(axis.out));
  for (int64_t i = 0; i < axis.out; ++i)
    for (int64_t tap = 0; tap < axis.kernel; ++tap) {
      const int64_t at = i * axis.stride + tap * axis.dilation - axis.before;
      out[static_cast<size_t>(i)] += with_padding ? at < axis.in + axis.after : at >= 0 && at < axis.in;
    }
  return out;
}

/// Divides the sums of a plane by the numbers of their taps.
void divide(const std::vector<WindowAxis>& axes, const std::vector<std::vector<float>>& counts, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float count = 1;
    int64_t rest = i;
    for (size_t k = axes.size(); k-- > 0; rest /= axes[k].out)
      count *= counts[k][static_cast<size_t>(rest % axes[k].out)];
    y[i] = count > 0 ? y[i] / count : 0;
  }
}

template <Isa isa>
KernelStatus run_mean(const KernelCall& call) {
  const auto& state = *static_cast<const PoolState*>(call.state);
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<WindowAxis> axes = window_axes(x.shape, y.shape, state.windows.kernel, state.windows);
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = y.shape.elements(2, y.shape.rank()),
                width = axes.back().out;
  if (y.elements() == 0) return {};
  int64_t taps = 1;
  std::vector<std::vector<float>> counts;
  for (const WindowAxis& axis : axes) {
    taps *= axis.kernel;
    counts.push_back(tap_counts(axis, state.counts_padding));
  }
  share(call.pool, y.shape[0] * y.shape[1], y.elements() * taps, [&](int64_t plane, int) {
    const float* from = x.as<float>() + plane * in;
    float* to = y.as<float>() + plane * out;
    std::fill_n(to, out, 0.0f);
    for (int64_t row = 0; row < out / width; ++row) {
      check_stopped();
      for (int64_t tap = 0; tap < taps; ++tap) {
        const WindowRow part = window_row(axes, row, tap, 0, width);
        if (part.begin < part.end)
          window_loops(isa).add_scaled(from + part.from, part.step, 1, to + row * width + part.begin,
                                       part.end - part.begin);
      }
    }
    divide(axes, counts, to, out);
  });
  return {};
}

/// First the greatest of each column of a row of windows, over the taps of all axes but the last; then of the columns of each window.
template <Isa isa>
KernelStatus run_max(const KernelCall& call) {
  const auto& state = *static_cast<const PoolState*>(call.state);
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  std::vector<WindowAxis> axes = window_axes(x.shape, y.shape, state.windows.kernel, state.windows);
  if (y.elements() == 0) return {};
  const std::vector<WindowAxis> along{axes.back()};
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = y.shape.elements(2, y.shape.rank()),
                width = along[0].out, columns = along[0].in;
  axes.back() = {columns, columns, 1, 1, 1, 0, 0};
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  const int64_t work = y.elements() / width * (taps * columns + along[0].kernel * width);
  share(call.pool, y.shape[0] * y.shape[1], work, [&](int64_t plane, int) {
    constexpr float least = -std::numeric_limits<float>::infinity();
    const auto put = [](const float* from, const WindowRow& part, float* to) {
      if (part.begin < part.end)
        window_loops(isa).greater(from + part.from, part.step, to + part.begin, part.end - part.begin);
    };
    const float* from = x.as<float>() + plane * in;
    float* to = y.as<float>() + plane * out;
    std::fill_n(to, out, least);
    std::vector<float> greatest(static_cast<size_t>(columns));
    for (int64_t row = 0; row < out / width; ++row) {
      check_stopped();
      std::ranges::fill(greatest, least);
      for (int64_t tap = 0; tap < taps; ++tap) put(from, window_row(axes, row, tap, 0, columns), greatest.data());
      for (int64_t tap = 0; tap < along[0].kernel; ++tap)
        put(greatest.data(), window_row(along, 0, tap, 0, width), to + row * width);
    }
  });
  return {};
}

/// The mean of each channel.
template <Isa isa>
KernelStatus run_global(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t in = x.shape.elements(2, x.shape.rank());
  share(call.pool, y.elements(), x.elements(), [&](int64_t plane, int) {
    const float sum = reduce_loops(isa).total[0](x.as<float>() + plane * in, in);
    y.as<float>()[plane] = in > 0 ? sum / static_cast<float>(in) : 0;
  });
  return {};
}

/// The greatest of each channel; NaN if there is one.
KernelStatus run_global_max(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t in = x.shape.elements(2, x.shape.rank());
  share(call.pool, y.elements(), x.elements(), [&](int64_t plane, int) {
    const float* from = x.as<float>() + plane * in;
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < in; ++i) best = best != best || from[i] <= best ? best : from[i];
    y.as<float>()[plane] = best;
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "MaxPool", .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run_max<isa>});
  add_kernel(table, isa,
             {.op = "AveragePool", .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run_mean<isa>});
  add_kernel(table, isa, {.op = "GlobalAveragePool", .dtypes = "f32", .accepts = accepts, .run = run_global<isa>});
  add_kernel(table, isa, {.op = "GlobalMaxPool", .dtypes = "f32", .accepts = accepts, .run = run_global_max});
}

}  // namespace

void add_pooling(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
