// ConvTranspose of f32: products of the weights with the image, added where their windows lie.
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/image/register.h"
#include "kernels/cpu/image/window_loops.h"
#include "kernels/cpu/image/window_rows.h"

namespace plait::cpu {
namespace {

struct TransposedState : KernelState {
  explicit TransposedState(const Attributes& attributes) : windows(attributes) {}
  TransposedWindowAttributes windows;
};

std::shared_ptr<const KernelState> prepare_transposed(const NodeInfo& node) {
  return std::make_shared<TransposedState>(node.attributes);
}

bool accepts_transposed(const NodeInfo& node) {
  return is_f32(node, 0) && is_f32(node, 1) && is_f32_or_absent(node, 2);
}

/// x [batch, group read, in], w [group read, made, taps] -> y [batch, group made, out].
struct TransposedShape {
  TransposedShape(const TransposedWindowAttributes& windows, const Shape& x, const Shape& w, const Shape& y)
      : axes(transposed_window_axes(x, w, y, windows)),
        batch(x[0]),
        group(windows.group),
        read(windows.group > 0 ? x[1] / windows.group : 0),
        made(w[1]),
        in(x.elements(2, x.rank())),
        out(y.elements(2, y.rank())),
        taps(w.elements(2, w.rank())),
        fits(windows.group >= 1 && w[0] == x[1] && x[1] % windows.group == 0 && y[1] == w[1] * windows.group) {}
  /// Positions of x at once, whose products are 4 MB.
  int64_t columns() const {
    const int64_t fit = (int64_t{1} << 20) / std::max<int64_t>(made * taps, 1) / gemm_columns * gemm_columns;
    return std::min(in, std::max(fit, gemm_columns));
  }

  std::vector<WindowAxis> axes;
  int64_t batch, group, read, made, in, out, taps;
  bool fits;
};

template <Isa isa>
int64_t transposed_scratch(const KernelState* state, std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs, int threads) {
  const TransposedShape n(static_cast<const TransposedState*>(state)->windows, inputs[0].shape, inputs[1].shape,
                          outputs[0].shape);
  if (!n.fits) return 0;
  return align(4 * n.made * n.taps * n.columns()) +
         GemmWorkspace(f32_gemm_tiles(isa), n.made * n.taps, n.read).bytes(threads);
}

/// Adds row `tap` of the products of positions [j0, j1) to a plane of y.
void add_products(const WindowLoops& loops, const TransposedShape& n, const float* from, int64_t tap, int64_t j0,
                  int64_t j1, float* plane) {
  const int64_t width = n.axes.back().out;
  for (int64_t j = j0; j < j1;) {
    const int64_t row = j / width, first = j % width, last = std::min(width, first + j1 - j);
    const WindowRow part = window_row(n.axes, row, tap, first, last);
    const float* products = from + (j - j0) + (part.begin - first);
    float* to = plane + part.from;
    const int64_t count = part.end - part.begin;
    if (part.step == 1 && count > 0) loops.add_scaled(products, 1, 1, to, count);
    else
      for (int64_t i = 0; i < count; ++i) to[i * part.step] += products[i];
    j += last - first;
  }
}

template <Isa isa>
KernelStatus run_transposed(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const TransposedShape n(static_cast<const TransposedState*>(call.state)->windows, x.shape, w.shape, y.shape);
  if (!n.fits) return {KernelCode::bad_value, 1, w.shape[0]};
  const bool shifted = call.inputs.size() > 2 && call.inputs[2].present();
  if (shifted && call.inputs[2].elements() != n.group * n.made)
    return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  const int64_t rows = n.made * n.taps, most = n.columns();
  auto* products = reinterpret_cast<float*>(call.scratch.data());
  std::byte* workspace = call.scratch.data() + align(4 * rows * most);
  const WindowLoops& loops = window_loops(isa);
  for (int64_t item = 0; item < n.batch * n.group; ++item) {
    const int64_t g = item % n.group;
    float* planes = y.as<float>() + item * n.made * n.out;
    for (int64_t m = 0; m < n.made; ++m)
      std::fill_n(planes + m * n.out, n.out, shifted ? call.inputs[2].as<float>()[g * n.made + m] : 0.0f);
    for (int64_t j = 0; j < n.in; j += most) {
      const int64_t count = std::min(most, n.in - j);
      run_gemm(call.pool, f32_gemm_tiles(isa),
               {.a = {w.as<float>() + g * n.read * rows, rows, true},
                .b = {reinterpret_cast<const uint8_t*>(x.as<float>() + item * n.read * n.in + j), DType::f32, n.in},
                .m = rows,
                .n = count,
                .k = n.read,
                .y = products,
                .ldy = count},
               workspace);
      share(call.pool, n.made, rows * count, [&](int64_t m, int) {
        for (int64_t tap = 0; tap < n.taps; ++tap)
          add_products(loops, n, products + (m * n.taps + tap) * count, tap, j, j + count, planes + m * n.out);
      });
    }
  }
  return {};
}

template <Isa isa>
void add_transposed(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "ConvTranspose",
              .dtypes = "f32",
              .accepts = accepts_transposed,
              .prepare = prepare_transposed,
              .scratch_bytes = transposed_scratch<isa>,
              .run = run_transposed<isa>});
}

}  // namespace

void add_transposed_convolution(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_transposed<Isa::avx2>(table);
  if (isa == Isa::avx512) add_transposed<Isa::avx512>(table);
}

}  // namespace plait::cpu
