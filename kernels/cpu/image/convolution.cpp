// Conv of f32: one kernel per channel row by row, others as products of the weights with columns of the image.
#include <cstring>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/image/register.h"
#include "kernels/cpu/image/window_loops.h"
#include "kernels/cpu/image/window_rows.h"

namespace plait::cpu {
namespace {

struct ConvState : KernelState {
  explicit ConvState(const Attributes& attributes) : windows(attributes) {}
  WindowAttributes windows;
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  return std::make_shared<ConvState>(node.attributes);
}

bool accepts(const NodeInfo& node) { return is_f32(node, 0) && is_f32(node, 1) && is_f32_or_absent(node, 2); }

/// x [batch, group read, in], w [group made, read, taps] -> y [batch, group made, out].
struct ConvShape {
  ConvShape(const WindowAttributes& windows, const Shape& x, const Shape& w, const Shape& y)
      : axes(window_axes(x, y, {w.begin() + 2, w.end()}, windows)),
        batch(x[0]),
        group(windows.group),
        read(w[1]),
        made(windows.group > 0 ? w[0] / windows.group : 0),
        in(x.elements(2, x.rank())),
        out(y.elements(2, y.rank())),
        taps(w.elements(2, w.rank())),
        fits(windows.group >= 1 && x[1] == read * windows.group && w[0] % windows.group == 0) {
    identity = taps == 1 && in == out;
    for (const WindowAxis& axis : axes) identity = identity && axis.stride == 1 && axis.before == 0;
  }
  /// Columns of the image at once: 4 MB of them, which stay in L2 or L3 until they are packed.
  int64_t columns() const {
    const int64_t fit = (int64_t{1} << 20) / std::max<int64_t>(read * taps, 1) / gemm_columns * gemm_columns;
    return std::min(out, std::max(fit, gemm_columns));
  }
  /// Rows of results for each tap: a row has to end soon once the run is cancelled.
  bool by_channel() const { return read == 1 && made <= 4 && taps <= 4096; }

  std::vector<WindowAxis> axes;
  int64_t batch, group, read, made, in, out, taps;
  bool fits;
  bool identity;  ///< the columns are the image
};

/// Elements [j0, j1) of row (channel, tap) of the columns: `to` [j1 - j0].
void fill_column_row(const ConvShape& n, const float* plane, int64_t tap, int64_t j0, int64_t j1, float* to) {
  const int64_t width = n.axes.back().out;
  for (int64_t j = j0; j < j1;) {
    const int64_t row = j / width, first = j % width, last = std::min(width, first + j1 - j);
    const WindowRow part = window_row(n.axes, row, tap, first, last);
    std::fill(to, to + (part.begin - first), 0.0f);
    const float* from = plane + part.from;
    float* inside = to + (part.begin - first);
    const int64_t count = part.end - part.begin;
    if (part.step == 1 && count > 0) std::memcpy(inside, from, static_cast<size_t>(count) * sizeof(float));
    else
      for (int64_t i = 0; i < count; ++i) inside[i] = from[i * part.step];
    std::fill(inside + count, to + (last - first), 0.0f);
    to += last - first;
    j += last - first;
  }
}

template <Isa isa>
int64_t scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                int threads) {
  const ConvShape n(static_cast<const ConvState*>(state)->windows, inputs[0].shape, inputs[1].shape,
                    outputs[0].shape);
  if (!n.fits || n.by_channel()) return 0;
  const int64_t columns = n.identity ? 0 : align(4 * n.read * n.taps * n.columns());
  return columns + GemmWorkspace(f32_gemm_tiles(isa), n.made, n.read * n.taps).bytes(threads);
}

/// Each output channel reads one input channel: sums of shifted rows.
template <Isa isa>
void by_channel(const KernelCall& call, const ConvShape& n, const float* bias) {
  const WindowLoops& loops = window_loops(isa);
  const float *x = call.inputs[0].as<float>(), *w = call.inputs[1].as<float>();
  const int64_t width = n.axes.back().out, rows = n.out / std::max<int64_t>(width, 1), planes = n.group * n.made;
  share(call.pool, n.batch * planes, n.batch * planes * n.out * n.taps, [&](int64_t plane, int) {
    const int64_t m = plane % planes;
    const float* from = x + (plane / planes * n.group + m / n.made) * n.in;
    float* to = call.outputs[0].as<float>() + plane * n.out;
    std::fill_n(to, n.out, bias ? bias[m] : 0.0f);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t tap = 0; tap < n.taps; ++tap) {
        const WindowRow part = window_row(n.axes, row, tap, 0, width);
        if (part.begin < part.end)
          loops.add_scaled(from + part.from, part.step, w[m * n.taps + tap], to + row * width + part.begin,
                           part.end - part.begin);
      }
  });
}

/// y = w [made, read taps] times columns [read taps, out], a block of columns after the other.
template <Isa isa>
void by_product(const KernelCall& call, const ConvShape& n, const float* bias) {
  const GemmTiles& tiles = f32_gemm_tiles(isa);
  const int64_t k = n.read * n.taps, most = n.columns();
  auto* columns = reinterpret_cast<float*>(call.scratch.data());
  std::byte* workspace = call.scratch.data() + (n.identity ? 0 : align(4 * k * most));
  for (int64_t item = 0; item < n.batch * n.group; ++item) {
    const int64_t g = item % n.group;
    const float* x = call.inputs[0].as<float>() + item * n.read * n.in;
    const float* w = call.inputs[1].as<float>() + g * n.made * k;
    float* y = call.outputs[0].as<float>() + item * n.made * n.out;
    for (int64_t m = 0; m < n.made && bias; ++m) std::fill_n(y + m * n.out, n.out, bias[g * n.made + m]);
    for (int64_t j = 0; j < n.out; j += n.identity ? n.out : most) {
      const int64_t count = n.identity ? n.out : std::min(most, n.out - j);
      if (!n.identity)
        share_ranges(call.pool, k, 1, count, [&](int64_t begin, int64_t end, int) {
          for (int64_t row = begin; row < end; ++row)
            fill_column_row(n, x + row / n.taps * n.in, row % n.taps, j, j + count, columns + row * count);
        });
      const float* right = n.identity ? x : columns;
      run_gemm(call.pool, tiles,
               {.a = {w, k, false},
                .b = {reinterpret_cast<const uint8_t*>(right), DType::f32, count},
                .m = n.made,
                .n = count,
                .k = k,
                .y = y + j,
                .ldy = n.out,
                .adds = bias != nullptr},
               workspace);
    }
  }
}

template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const ConvShape n(static_cast<const ConvState*>(call.state)->windows, call.inputs[0].shape, call.inputs[1].shape,
                    call.outputs[0].shape);
  if (!n.fits) return {KernelCode::bad_value, 1, call.inputs[1].shape[0]};
  if (call.outputs[0].elements() == 0) return {};
  const bool shifted = call.inputs.size() > 2 && call.inputs[2].present();
  if (shifted && call.inputs[2].elements() != n.group * n.made)
    return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  const float* bias = shifted ? call.inputs[2].as<float>() : nullptr;
  if (n.by_channel()) by_channel<isa>(call, n, bias);
  else by_product<isa>(call, n, bias);
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "Conv",
              .dtypes = "f32",
              .accepts = accepts,
              .prepare = prepare,
              .scratch_bytes = scratch<isa>,
              .run = run<isa>});
}

}  // namespace

void add_convolution(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
