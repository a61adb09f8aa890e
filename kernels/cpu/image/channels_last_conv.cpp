// plait.ChannelsLastConv of f32: products of pixels with packed weights, without columns in memory, and windows of one channel each.
#include <cstring>

#include "kernels/cpu/gemm/packed.h"
#include "kernels/cpu/image/plane_windows.h"
#include "kernels/cpu/image/register.h"
#include "kernels/cpu/rows/steps.h"

namespace plait::cpu {
namespace {

struct LastConvState : KernelState {
  explicit LastConvState(const NodeInfo& node) : windows(node.attributes), steps(node, node.inputs.size() - 1) {}
  WindowAttributes windows;
  StepsPlan steps;
};

std::shared_ptr<const KernelState> prepare_last_conv(const NodeInfo& node) {
  return std::make_shared<LastConvState>(node);
}

bool accepts_last_conv(const NodeInfo& node) {
  const int rank = node.inputs[0].rank;
  return (rank == 3 || rank == 4) && node.inputs[1].constant && node.inputs[0].dtype == DType::f32 &&
         node.inputs[1].dtype == DType::f32 &&
         std::all_of(node.inputs.begin() + 2, node.inputs.end(),
                     [](const OperandInfo& one) { return StepsRun::takes(one.dtype); });
}

// ---- Weights ----

/// w [m, read, taps] as panels of outputs, whose steps are (tap, channel).
template <Isa isa>
Tensor pack_panels_of(const Tensor& plain, ThreadPool*) {
  const Shape& shape = plain.shape();
  const int64_t m = shape[0], read = shape[1], taps = shape.elements(2, shape.rank()), k = read * taps;
  std::vector<float> rows(static_cast<size_t>(m * k));
  const float* from = plain.as<float>();
  for (int64_t j = 0; j < m; ++j)
    for (int64_t c = 0; c < read; ++c)
      for (int64_t tap = 0; tap < taps; ++tap)
        rows[static_cast<size_t>(j * k + tap * read + c)] = from[(j * read + c) * taps + tap];
  const GemmTiles& tiles = f32_gemm_tiles(isa);
  auto blob = make_blob(std::max(tiles.right_bytes(m, k), plain.bytes()));
  tiles.pack_right({reinterpret_cast<const uint8_t*>(rows.data()), DType::f32, k, true}, m, k, blob->mutable_data());
  return Tensor(plain.dtype(), shape, blob);
}

/// w [m, 1, taps] as [taps, m].
Tensor pack_channels(const Tensor& plain) {
  const Shape& shape = plain.shape();
  const int64_t m = shape[0], taps = shape.elements(2, shape.rank());
  auto blob = make_blob(plain.bytes());
  auto* to = reinterpret_cast<float*>(blob->mutable_data());
  for (int64_t j = 0; j < m; ++j)
    for (int64_t tap = 0; tap < taps; ++tap) to[tap * m + j] = plain.as<float>()[j * taps + tap];
  return Tensor(plain.dtype(), shape, blob);
}

/// Of groups: what each output reads is one channel, or some.
template <Isa isa>
Tensor pack_groups(const Tensor& plain, ThreadPool* pool) {
  return plain.shape()[1] == 1 ? pack_channels(plain) : pack_panels_of<isa>(plain, pool);
}

template <Isa isa>
const PackedLayout* pack_last_conv(const NodeInfo& node, size_t operand) {
  static constexpr PackedLayout whole{isa == Isa::avx2 ? "convolution panels of 16" : "convolution panels of 32",
                                      pack_panels_of<isa>};
  static constexpr PackedLayout groups{isa == Isa::avx2 ? "groups' panels of 16" : "groups' panels of 32",
                                       pack_groups<isa>};
  if (operand != 1) return nullptr;
  return node.attributes.integer("group", 1) == 1 ? &whole : &groups;
}

// ---- Sizes ----

/// x [b, in, c], w [m, read, taps] -> y [b, out, m]; a pixel of y is a product of k = taps read numbers for each group.
struct LastConv {
  LastConv(const LastConvState& state, std::span<const TensorView> inputs, const TensorView& y)
      : n(inputs[0].shape, y.shape, {inputs[1].shape.begin() + 2, inputs[1].shape.end()}, state.windows),
        group(state.windows.group),
        m(inputs[1].shape[0]),
        read(inputs[1].shape[1]),
        k(read * n.taps()),
        pixels(n.batch * n.out()),
        by_channel(group > 1 && read == 1) {}
  bool fits() const { return group >= 1 && read * group == n.channels && m % group == 0; }

  PlaneWindows n;
  int64_t group, m, read, k, pixels;
  bool by_channel;
};

template <Isa isa>
int64_t last_conv_scratch(const KernelState* state, std::span<const TensorView> inputs,
                          std::span<const TensorView> outputs, int threads) {
  const auto& own = *static_cast<const LastConvState*>(state);
  const LastConv conv(own, inputs, outputs[0]);
  const int64_t steps = align(StepsRun::worker_bytes(own.steps));
  if (conv.by_channel) return threads * steps;
  return threads * (steps + PackedPlan(f32_gemm_tiles(isa), conv.pixels, conv.m, conv.k, threads).worker_bytes());
}

// ---- Products ----

/// Packs numbers [k0, k1) of what pixels [first, first + count) of y read of channels [channel, channel + read).
void pack_pixels(const LastConv& conv, const GemmTiles& tiles, const float* x, int64_t first, int64_t count,
                 int64_t k0, int64_t k1, int64_t channel, float* to) {
  const PlaneWindows& n = conv.n;
  constexpr int64_t most = 16;
  int64_t image[most], top[most], left[most];
  bool inside = conv.group == 1 && (n.across.dilation == 1 || n.across.kernel == 1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pixel = first + i, at = pixel % n.out();
    image[i] = pixel / n.out() * n.in();
    top[i] = at / n.across.out * n.down.stride - n.down.before;
    left[i] = at % n.across.out * n.across.stride - n.across.before;
    inside = inside && left[i] >= 0 && left[i] + n.across.kernel <= n.across.in;
  }
  // Inside the image the taps of a line lie one after another.
  const int64_t together = inside ? n.across.kernel : 1, run = together * conv.read;
  const float* rows[most];
  for (int64_t tap = k0 / run * together; tap * conv.read < k1; tap += together) {
    const int64_t begin = std::max(k0, tap * conv.read), end = std::min(k1, tap * conv.read + run);
    for (int64_t p = 0; p < count; ++p) {
      const int64_t line = top[p] + tap / n.across.kernel * n.down.dilation,
                    column = left[p] + tap % n.across.kernel * n.across.dilation;
      const bool padding = line < 0 || line >= n.down.in || column < 0 || column >= n.across.in;
      rows[p] = padding
                    ? nullptr
                    : x + (image[p] + line * n.across.in + column) * n.channels + channel + begin - tap * conv.read;
    }
    tiles.pack_rows(rows, count, end - begin, to);
    to += (end - begin) * tiles.rows;
  }
}

void run_products(const KernelCall& call, const LastConv& conv, const GemmTiles& tiles, const StepsPlan& plan,
                  const StepsRun& steps) {
  const float* x = call.inputs[0].as<float>();
  const PackedPlan sizes(tiles, conv.pixels, conv.m, conv.k, call.pool.size());
  // One tap at each pixel: the image's pixels are the rows.
  auto same = [](const WindowAxis& axis) {
    return axis.kernel == 1 && axis.in == axis.out && axis.before == 0 && (axis.stride == 1 || axis.out == 1);
  };
  const bool plain = same(conv.n.down) && same(conv.n.across);
  const int64_t made = conv.m / conv.group, worker_bytes = sizes.worker_bytes() + align(StepsRun::worker_bytes(plan));
  for (int64_t g = 0; g < conv.group; ++g)
    run_packed(
        call.pool, tiles, sizes,
        {.weights = call.inputs[1].data,
         .begin = g * made,
         .end = (g + 1) * made,
         .y = call.outputs[0].as<float>(),
         .ldy = conv.m,
         .rows = plain && reads_rows(conv.n.channels, conv.k) ? x + g * conv.read : nullptr,
         .pitch = conv.n.channels},
        call.scratch.data(), worker_bytes,
        [&](int64_t first, int64_t count, int64_t k0, int64_t k1, float* to) {
          pack_pixels(conv, tiles, x, first, count, k0, k1, g * conv.read, to);
        },
        [&](int64_t first, int64_t count, int64_t j0, int64_t j1, std::byte* spare) {
          if (plan.empty()) return;
          if (j0 == 0 && j1 == conv.m) steps.run(first * conv.m, (first + count) * conv.m, spare);
          else
            for (int64_t i = first; i < first + count; ++i) steps.run(i * conv.m + j0, i * conv.m + j1, spare);
        });
}

// ---- Windows of one channel ----

void run_by_channel(const KernelCall& call, const LastConv& conv, const ChannelLoops& loops, const StepsPlan& plan,
                    const StepsRun& steps) {
  const PlaneWindows& n = conv.n;
  const float *x = call.inputs[0].as<float>(), *w = call.inputs[1].as<float>();
  auto* y = call.outputs[0].as<float>();
  const int64_t bytes = align(StepsRun::worker_bytes(plan)), each = conv.m / conv.group,
                row_size = n.across.out * conv.m;
  share_ranges(
      call.pool, n.batch * n.down.out, 1, row_size * n.taps() / 8, [&](int64_t begin, int64_t end, int worker) {
        std::vector<const float*> from, by;
        for (int64_t row = begin; row < end; ++row) {
          if (each == 1) {
            window_runs(n, x, w, y, row, false, from, by, [&](const WindowRun& run) { loops.depthwise(run); });
          } else {  // some outputs for each channel
            std::fill_n(y + row * row_size, row_size, 0.0f);
            const int64_t top = row % n.down.out * n.down.stride - n.down.before;
            for (int64_t at = 0; at < n.across.out; ++at)
              for (int64_t tap = 0; tap < n.taps(); ++tap) {
                const int64_t line = top + tap / n.across.kernel * n.down.dilation,
                              column =
                                  at * n.across.stride - n.across.before + tap % n.across.kernel * n.across.dilation;
                if (line < 0 || line >= n.down.in || column < 0 || column >= n.across.in) continue;
                const float* pixel = x + (row / n.down.out * n.in() + line * n.across.in + column) * n.channels;
                float* to = y + row * row_size + at * conv.m;
                for (int64_t j = 0; j < conv.m; ++j) to[j] += pixel[j / each] * w[tap * conv.m + j];
              }
          }
          if (!plan.empty()) steps.run(row * row_size, (row + 1) * row_size, call.scratch.data() + worker * bytes);
        }
      });
}

template <Isa isa>
KernelStatus run_last_conv(const KernelCall& call) {
  const auto& state = *static_cast<const LastConvState*>(call.state);
  const GemmTiles& tiles = f32_gemm_tiles(isa);
  const LastConv conv(state, call.inputs, call.outputs[0]);
  if (!conv.fits()) return {KernelCode::bad_value, 1, conv.m};
  if (const int32_t k = StepsRun::misfit(call.inputs.subspan(2), call.outputs[0].shape); k >= 0)
    return {KernelCode::bad_value, k + 2, call.inputs[static_cast<size_t>(k) + 2].elements()};
  if (call.outputs[0].elements() == 0) return {};
  const StepsRun steps(state.steps, call.inputs.subspan(2), call.outputs[0], true, isa);
  if (conv.by_channel) run_by_channel(call, conv, channel_loops(isa), state.steps, steps);
  else run_products(call, conv, tiles, state.steps, steps);
  return {};
}

template <Isa isa>
void add_last_conv(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.ChannelsLastConv",
              .dtypes = "f32",
              .accepts = accepts_last_conv,
              .prepare = prepare_last_conv,
              .scratch_bytes = last_conv_scratch<isa>,
              .run = run_last_conv<isa>,
              .pack = pack_last_conv<isa>});
}

}  // namespace

void add_channels_last_conv(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_last_conv<Isa::avx2>(table);
  if (isa == Isa::avx512) add_last_conv<Isa::avx512>(table);
}

}  // namespace plait::cpu
