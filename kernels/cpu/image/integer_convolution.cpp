// ConvInteger and QLinearConv: products of the weights with columns of the image, which are made panel by panel.
#include <limits>

#include "kernels/cpu/image/register.h"
#include "kernels/cpu/image/window_rows.h"
#include "kernels/cpu/linear/integer_products.h"

namespace plait::cpu {
namespace {

struct IntegerConvState : KernelState {
  explicit IntegerConvState(const NodeInfo& node) : windows(node.attributes), quantized(node.op == "QLinearConv") {}
  WindowAttributes windows;
  bool quantized;
  size_t w() const { return quantized ? 3 : 1; }
  size_t x_zero() const { return 2; }
  size_t w_zero() const { return quantized ? 5 : 3; }
};

std::shared_ptr<const KernelState> prepare_integer_conv(const NodeInfo& node) {
  return std::make_shared<IntegerConvState>(node);
}

bool accepts_integer_conv(const NodeInfo& node) {
  if (node.op == "ConvInteger") return is_code(node.inputs[0].dtype) && is_code(node.inputs[1].dtype);
  return is_code(node.inputs[0].dtype) && is_code(node.inputs[3].dtype) && is_code(node.outputs[0].dtype) &&
         is_f32(node, 1) && is_f32(node, 4) && is_f32(node, 6);
}

/// x [batch, group read, in], w [group made, read, taps] -> y [batch, group made, out].
struct IntegerConv {
  IntegerConv(const IntegerConvState& state, std::span<const TensorView> inputs, const TensorView& y)
      : x(inputs[0]),
        w(inputs[state.w()]),
        axes(window_axes(x.shape, y.shape, {w.shape.begin() + 2, w.shape.end()}, state.windows)),
        group(state.windows.group),
        read(w.shape[1]),
        made(group > 0 ? w.shape[0] / group : 0),
        in(x.shape.elements(2, x.shape.rank())),
        out(y.shape.elements(2, y.shape.rank())),
        taps(w.shape.elements(2, w.shape.rank())),
        pointwise(taps == 1 && std::all_of(axes.begin(), axes.end(),
                                           [](const WindowAxis& axis) {
                                             return axis.before == 0 && axis.out == axis.in &&
                                                    (axis.stride == 1 || axis.in == 1);
                                           })),
        fits(group >= 1 && x.shape[1] == read * group && w.shape[0] % group == 0) {}

  /// Numbers [j0, j0 + count) of row (channel, tap) of the columns, less the zero point: padding is 0.
  void column_row(int64_t plane, int64_t tap, int64_t j0, int64_t count, int32_t zero, const CodeLoops& loops,
                  int16_t* to) const {
    if (pointwise) return centre(loops, x, plane * in + j0, 1, count, zero, to);
    const int64_t width = axes.back().out;
    for (int64_t j = j0; j < j0 + count;) {
      const int64_t first = j % width, last = std::min(width, first + j0 + count - j);
      const WindowRow part = window_row(axes, j / width, tap, first, last);
      if (part.end > part.begin)
        centre(loops, x, plane * in + part.from, part.step, part.end - part.begin, zero,
               to + (j - j0) + (part.begin - first));
      j += last - first;
    }
  }

  /// Each output channel reads one channel, and sums fit into i32.
  bool depthwise() const { return read == 1 && taps <= IntegerPlan::deepest; }

  const TensorView &x, &w;
  std::vector<WindowAxis> axes;
  int64_t group, read, made, in, out, taps;
  bool pointwise;  ///< columns are the image itself
  bool fits;
};

/// A worker's sums, and what is added to them at once, where each output channel reads one channel.
struct DepthwiseScratch {
  static constexpr int64_t columns = 1024, bytes = columns * 6;
  explicit DepthwiseScratch(std::byte* memory)
      : sums(reinterpret_cast<int32_t*>(memory)), line(reinterpret_cast<int16_t*>(memory + columns * 4)) {}
  int32_t* sums;
  int16_t* line;
};

template <Isa isa>
int64_t integer_conv_scratch(const KernelState* state, std::span<const TensorView> inputs,
                             std::span<const TensorView> outputs, int threads) {
  const IntegerConv conv(*static_cast<const IntegerConvState*>(state), inputs, outputs[0]);
  if (conv.depthwise()) return threads * DepthwiseScratch::bytes;
  return IntegerPlan(integer_tiles(isa), conv.made, conv.read * conv.taps).bytes(threads);
}

/// Sums to 8-bit numbers, which may leave i32 with their bias: each times the scale of its channel, rounded to even, plus the zero point.
template <class Sum, class Code>
void store_codes(const Sum* sums, int64_t count, int64_t bias, float scale, int32_t zero, Code* to) {
  constexpr float low = std::numeric_limits<Code>::min(), high = std::numeric_limits<Code>::max();
  constexpr float magic = 12582912;  // 1.5 2^23: the sum has no fraction
  const auto shift = static_cast<float>(zero);
  for (int64_t j = 0; j < count; ++j) {
    const float value = static_cast<float>(static_cast<int64_t>(sums[j]) + bias) * scale;
    const float held = value < -1024 ? -1024.0f : value > 1024 ? 1024.0f : value;  // far beyond all codes
    const float rounded = (held + magic) - magic + shift;
    to[j] = static_cast<Code>(static_cast<int32_t>(rounded < low ? low : rounded > high ? high : rounded));
  }
}

const TensorView* operand(const KernelCall& call, size_t k) {
  return k < call.inputs.size() && call.inputs[k].present() ? &call.inputs[k] : nullptr;
}

/// The first operand that is neither one element nor one for each channel; -1 if none.
int32_t misfit(const KernelCall& call, const IntegerConvState& state, int64_t channels) {
  auto wrong = [&](size_t k, bool per_channel) {
    const TensorView* own = operand(call, k);
    return own && own->elements() != 1 && !(per_channel && own->elements() == channels);
  };
  if (wrong(state.x_zero(), false)) return static_cast<int32_t>(state.x_zero());
  if (wrong(state.w_zero(), true)) return static_cast<int32_t>(state.w_zero());
  if (!state.quantized) return -1;
  for (size_t k : {1, 6, 7})
    if (wrong(k, false)) return static_cast<int32_t>(k);
  if (wrong(4, true)) return 4;
  const TensorView* bias = operand(call, 8);
  return bias && bias->elements() != channels ? 8 : -1;
}

template <Isa isa>
KernelStatus run_integer_conv(const KernelCall& call) {
  const auto& state = *static_cast<const IntegerConvState*>(call.state);
  const TensorView& y = call.outputs[0];
  const IntegerConv conv(state, call.inputs, y);
  if (!conv.fits) return {KernelCode::bad_value, static_cast<int32_t>(state.w()), conv.w.shape[0]};
  if (const int32_t k = misfit(call, state, conv.w.shape[0]); k >= 0) return {KernelCode::bad_value, k, 0};
  if (y.elements() == 0) return {};
  const TensorView *w_zero = operand(call, state.w_zero()), *bias = state.quantized ? operand(call, 8) : nullptr;
  const int32_t zero = code_at(operand(call, state.x_zero()), 0);
  const int64_t k = conv.read * conv.taps;
  const CodeLoops& loops = code_loops(isa);
  // Takes sums [j0, j0 + count) of a channel of y[b].
  auto store = [&](int64_t b, int64_t channel, int64_t j0, int64_t count, const auto* sums) {
    const int64_t at = (b * conv.w.shape[0] + channel) * conv.out + j0;
    if (!state.quantized) {
      for (int64_t j = 0; j < count; ++j) y.as<int32_t>()[at + j] = static_cast<int32_t>(sums[j]);
      return;
    }
    const TensorView& scales = call.inputs[4];
    const float scale = *call.inputs[1].as<float>() * scales.as<float>()[scales.elements() == 1 ? 0 : channel] /
                        *call.inputs[6].as<float>();
    const int64_t shift = bias ? bias->as<int32_t>()[channel] : 0;
    const int32_t y_zero = code_at(&call.inputs[7], 0);
    auto codes = [&](auto* to) {
      constexpr int64_t most = int64_t{255} * 255;
      if constexpr (sizeof(*sums) == 4)
        if (std::abs(shift) + k * most <= INT32_MAX)
          return codes_of(loops, to).requantize(sums, count, static_cast<int32_t>(shift), scale,
                                                static_cast<float>(y_zero), to);
      store_codes(sums, count, shift, scale, y_zero, to);
    };
    if (y.dtype == DType::u8) codes(y.as<uint8_t>() + at);
    else codes(y.as<int8_t>() + at);
  };
  auto zero_of = [&](int64_t channel) { return w_zero ? code_at(w_zero, w_zero->elements() == 1 ? 0 : channel) : 0; };
  if (conv.depthwise()) {
    share(call.pool, y.shape[0] * conv.w.shape[0], y.elements() * k / 4, [&](int64_t item, int worker) {
      const DepthwiseScratch own(call.scratch.data() + worker * DepthwiseScratch::bytes);
      const int64_t b = item / conv.w.shape[0], channel = item % conv.w.shape[0];
      for (int64_t j0 = 0; j0 < conv.out; j0 += DepthwiseScratch::columns) {
        const int64_t count = std::min(DepthwiseScratch::columns, conv.out - j0);
        std::fill_n(own.sums, count, 0);
        for (int64_t tap = 0; tap < k; ++tap) {
          std::fill_n(own.line, count, int16_t{0});
          conv.column_row(b * conv.group + channel / conv.made, tap, j0, count, zero, loops, own.line);
          loops.add_scaled(own.line, code_at(&conv.w, channel * k + tap) - zero_of(channel), count, own.sums);
        }
        store(b, channel, j0, count, static_cast<const int32_t*>(own.sums));
      }
    });
    return {};
  }
  for (int64_t item = 0; item < y.shape[0] * conv.group; ++item) {
    const int64_t first = item % conv.group * conv.made;  // channel of the weights
    run_integer_product(
        call.pool, integer_tiles(isa), loops, conv.made, conv.out, k, call.scratch.data(),
        [&](int64_t row, int16_t* to) { centre(loops, conv.w, (first + row) * k, 1, k, zero_of(first + row), to); },
        [&](int64_t row, int64_t j0, int64_t count, int16_t* to) {
          conv.column_row(item * conv.read + row / conv.taps, row % conv.taps, j0, count, zero, loops, to);
        },
        [&](int64_t row, int64_t j0, int64_t count, const auto* sums) {
          store(item / conv.group, first + row, j0, count, sums);
        });
  }
  return {};
}

template <Isa isa>
void add_integer_conv(KernelTable& table) {
  for (const char* op : {"ConvInteger", "QLinearConv"})
    add_kernel(table, isa,
               {.op = op,
                .dtypes = "u8, i8",
                .accepts = accepts_integer_conv,
                .prepare = prepare_integer_conv,
                .scratch_bytes = integer_conv_scratch<isa>,
                .run = run_integer_conv<isa>});
}

}  // namespace

void add_integer_convolution(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_integer_conv<Isa::avx2>(table);
  if (isa == Isa::avx512) add_integer_conv<Isa::avx512>(table);
}

}  // namespace plait::cpu
