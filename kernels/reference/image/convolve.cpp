// Convolutions over any number of space dims, with groups, strides, dilations and padding.
#include <cmath>

#include "core/base/windows.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"
#include "kernels/reference/image/sliding.h"

namespace plait::reference {
namespace {

/// Sizes of a convolution of x [b, group channels, in...] with w [out_channels, channels, kernel...].
struct ConvSizes {
  ConvSizes(const Shape& x, const Shape& w, const Shape& y, int64_t groups)
      : batch(x[0]),
        group(groups),
        channels(w[1]),
        out_channels(w[0]),
        in(x.elements(2, x.rank())),
        taps(w.elements(2, w.rank())),
        out(y.elements(2, y.rank())),
        fits(group >= 1 && x[1] == channels * group && out_channels % std::max<int64_t>(group, 1) == 0) {}
  int64_t batch, group, channels, out_channels, in, taps, out;
  bool fits;
};

/// y = finish(sum over taps and channels of x w, output channel): padding counts as zero.
template <class N, class F>
KernelStatus convolve(const KernelCall& call, const WindowAttributes& attributes, const Shape& x, const Shape& w,
                      const N* data, const N* weights, F finish) {
  const Shape& y = call.outputs[0].shape;
  const std::vector<WindowAxis> axes = window_axes(x, y, sizes_from(w, 2), attributes);
  const ConvSizes n(x, w, y, attributes.group);
  if (!n.fits) return {KernelCode::bad_value, 1, n.out_channels};
  std::vector<N> result(static_cast<size_t>(y.elements()));
  // Blocks of a plane that end soon once the run is cancelled.
  const int64_t each = std::max<int64_t>(1, (int64_t{1} << 22) / std::max<int64_t>(n.channels * n.taps, 1)),
                blocks = (n.out + each - 1) / each;
  share(call.pool, n.batch * n.out_channels * blocks, y.elements() * n.channels * n.taps, [&](int64_t item) {
    const int64_t plane = item / blocks, b = plane / n.out_channels, m = plane % n.out_channels;
    const int64_t first = b * x[1] + m / (n.out_channels / n.group) * n.channels, begin = item % blocks * each;
    for (int64_t to = begin; to < std::min(n.out, begin + each); ++to) {
      N sum = 0;
      for (int64_t tap = 0; tap < n.taps; ++tap) {
        const int64_t from = window_source(axes, to, tap);
        if (from < 0) continue;
        for (int64_t c = 0; c < n.channels; ++c)
          sum += data[(first + c) * n.in + from] * weights[(m * n.channels + c) * n.taps + tap];
      }
      result[static_cast<size_t>(plane * n.out + to)] = finish(sum, m);
    }
  });
  store_all(call.outputs[0], result);
  return {};
}

/// Conv: x [b, c, in...], w [m, c / group, kernel...], bias? [m] -> [b, m, out...].
KernelStatus conv(const KernelCall& call, const Sliding& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], bias = input(call, 2);
  if (bias.present() && bias.elements() != w.shape[0]) return {KernelCode::bad_value, 2, bias.elements()};
  const Loaded<double> data(x), weights(w);
  const std::vector<double> shift = bias.present() ? load_all<double>(bias) : std::vector<double>();
  return convolve(call, attributes, x.shape, w.shape, data.data(), weights.data(),
                  [&](double sum, int64_t m) { return shift.empty() ? sum : sum + shift[static_cast<size_t>(m)]; });
}

/// The elements less their zero point: one, or one for each of `count` blocks of the array.
bool centred(const TensorView& codes, const TensorView& zero, int64_t count, std::vector<int64_t>& out) {
  out = load_all<int64_t>(codes);
  if (!zero.present()) return true;
  const std::vector<int64_t> zeros = load_all<int64_t>(zero);
  const auto many = static_cast<int64_t>(zeros.size());
  if (many != 1 && many != count) return false;
  const int64_t block = many == 1 ? codes.elements() : codes.elements() / std::max<int64_t>(count, 1);
  for (size_t i = 0; i < out.size(); ++i) out[i] -= zeros[static_cast<size_t>(static_cast<int64_t>(i) / block)];
  return true;
}

/// ConvInteger: x and w 8-bit, their zero points (w's: one, or one per output channel) -> i32.
KernelStatus conv_integer(const KernelCall& call, const Sliding& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1];
  std::vector<int64_t> data, weights;
  if (!centred(x, input(call, 2), 1, data)) return {KernelCode::bad_value, 2, 0};
  if (!centred(w, input(call, 3), w.shape[0], weights)) return {KernelCode::bad_value, 3, 0};
  return convolve(call, attributes, x.shape, w.shape, data.data(), weights.data(),
                  [](int64_t sum, int64_t) { return sum; });
}

/// QLinearConv: ConvInteger plus an i32 bias, times both scales over y's, rounded to even, plus y's zero point.
KernelStatus qlinear_conv(const KernelCall& call, const Sliding& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[3], bias = input(call, 8), &y = call.outputs[0];
  std::vector<int64_t> data, weights;
  if (!centred(x, call.inputs[2], 1, data)) return {KernelCode::bad_value, 2, 0};
  if (!centred(w, call.inputs[5], w.shape[0], weights)) return {KernelCode::bad_value, 5, 0};
  const std::vector<float> scales = load_all<float>(call.inputs[4]);
  if (scales.size() != 1 && static_cast<int64_t>(scales.size()) != w.shape[0])
    return {KernelCode::bad_value, 4, static_cast<int64_t>(scales.size())};
  if (bias.present() && bias.elements() != w.shape[0]) return {KernelCode::bad_value, 8, bias.elements()};
  for (int k : {1, 2, 6, 7})
    if (call.inputs[static_cast<size_t>(k)].elements() != 1) return {KernelCode::bad_value, k, 0};
  const std::vector<int64_t> shift = bias.present() ? load_all<int64_t>(bias) : std::vector<int64_t>();
  const auto x_scale = load_one<float>(call.inputs[1], 0), y_scale = load_one<float>(call.inputs[6], 0);
  const auto zero = load_one<int64_t>(call.inputs[7], 0);
  const int64_t low = y.dtype == DType::i8 ? -128 : 0, high = y.dtype == DType::i8 ? 127 : 255;
  return convolve(call, attributes, x.shape, w.shape, data.data(), weights.data(), [&](int64_t sum, int64_t m) {
    const auto channel = static_cast<size_t>(m);
    if (!shift.empty()) sum += shift[channel];
    const float scale = x_scale * scales[scales.size() == 1 ? 0 : channel] / y_scale;
    const double rounded = std::nearbyint(static_cast<float>(sum) * scale) + static_cast<double>(zero);
    return static_cast<int64_t>(std::clamp(rounded, static_cast<double>(low), static_cast<double>(high)));
  });
}

struct TransposeAttributes : TransposedWindowAttributes {
  explicit TransposeAttributes(const NodeInfo& node) : TransposedWindowAttributes(node.attributes) {}
};

/// ConvTranspose: x [b, c, in...], w [c, m / group, kernel...], bias? [m] -> [b, m, out...].
KernelStatus conv_transpose(const KernelCall& call, const TransposeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], bias = input(call, 2), &y = call.outputs[0];
  const int64_t group = attributes.group, channels = x.shape[1], out_channels = y.shape[1];
  if (group < 1 || w.shape[0] != channels || channels % group || out_channels != w.shape[1] * group)
    return {KernelCode::bad_value, 1, w.shape[0]};
  if (bias.present() && bias.elements() != out_channels) return {KernelCode::bad_value, 2, bias.elements()};
  const std::vector<WindowAxis> axes = transposed_window_axes(x.shape, w.shape, y.shape, attributes);
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = y.shape.elements(2, y.shape.rank()),
                taps = w.shape.elements(2, w.shape.rank()), own = w.shape[1], read = channels / group;
  const Loaded<double> data(x), weights(w);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * out_channels, x.elements() * own * taps, [&](int64_t plane) {
    const int64_t b = plane / out_channels, m = plane % out_channels, g = m / own;
    double* to = result.data() + plane * out;
    if (bias.present()) std::fill_n(to, out, load_one<double>(bias, m));
    for (int64_t c = g * read; c < (g + 1) * read; ++c)
      for (int64_t from = 0; from < in; ++from) {
        const double value = data[(b * channels + c) * in + from];
        for (int64_t tap = 0; tap < taps; ++tap)
          if (const int64_t at = window_source(axes, from, tap); at >= 0)
            to[at] += value * weights[(c * own + m % own) * taps + tap];
      }
  });
  store_all(y, result);
  return {};
}

/// Col2Im: x [b, c taps, windows], image_shape, block_shape -> [b, c, image...], each column added where it was read.
KernelStatus col2im(const KernelCall& call, const Sliding& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<int64_t> block = to_ints(call.inputs[2]);
  if (static_cast<int>(block.size()) != y.shape.rank() - 2) return {KernelCode::bad_value, 2, 0};
  // The operand has a row for each tap: larger blocks, whose product may be no number, do not fit.
  const int64_t most = y.shape[1] ? x.shape[1] / y.shape[1] : int64_t{1} << 31;
  for (int64_t size : block)
    if (size < 1 || size > most) return {KernelCode::bad_value, 2, size};
  std::vector<WindowAxis> axes = window_axes(y.shape, y.shape, block, attributes);
  int64_t windows = 1, taps = 1;
  for (WindowAxis& axis : axes) {
    const int64_t span = axis.in + axis.before + axis.after - (axis.kernel - 1) * axis.dilation - 1;
    axis.out = span < 0 ? 0 : span / axis.stride + 1;
    if (axis.kernel > most / taps) return {KernelCode::bad_value, 2, axis.kernel};
    if (windows > 0 && axis.out > x.shape[2] / windows) return {KernelCode::bad_value, 0, x.shape[2]};
    windows *= axis.out;
    taps *= axis.kernel;
  }
  if (x.shape[1] != y.shape[1] * taps || x.shape[2] != windows) return {KernelCode::bad_value, 0, x.shape[2]};
  const int64_t size = y.shape.elements(2, y.shape.rank());
  const std::vector<double> columns = load_all<double>(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  for (int64_t plane = 0; plane < y.shape[0] * y.shape[1]; ++plane)
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t window = 0; window < windows; ++window)
        if (const int64_t at = window_source(axes, window, tap); at >= 0)
          result[static_cast<size_t>(plane * size + at)] +=
              columns[static_cast<size_t>((plane * taps + tap) * windows + window)];
  store_all(y, result);
  return {};
}

constexpr Domain bytes{"u8, i8", [](const NodeInfo& node) {
                         return first_is(node, [](DType dtype) { return dtype == DType::u8 || dtype == DType::i8; });
                       }};

}  // namespace

void add_convolve(KernelTable& table) {
  add<conv>(table, "Conv", floats);
  add<conv_transpose>(table, "ConvTranspose", floats);
  add<conv_integer>(table, "ConvInteger", bytes);
  add<qlinear_conv>(table, "QLinearConv", bytes);
  add<col2im>(table, "Col2Im", numbers);
}

}  // namespace plait::reference
