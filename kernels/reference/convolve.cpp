// Conv over any number of spatial dimensions, with groups, strides, dilations and padding.
#include <algorithm>
#include <string>

#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/multiply.h"
#include "kernels/reference/nest.h"
#include "kernels/reference/numbers.h"

namespace plait::reference {
namespace {

struct ConvAttributes {
  explicit ConvAttributes(const NodeInfo& node)
      : group(node.attributes.integer("group", 1)), strides(node.attributes.integers("strides")),
        dilations(node.attributes.integers("dilations")), pads(node.attributes.integers("pads")),
        auto_pad(node.attributes.string("auto_pad", "NOTSET")) {}
  int64_t group;
  std::vector<int64_t> strides, dilations, pads;  ///< empty: ones, ones, zeros
  std::string auto_pad;
};

/// How one spatial axis is walked: input position = output * stride + kernel * dilation - before.
struct Axis {
  int64_t in, out, kernel, stride, dilation, before;
};

std::vector<Axis> axes_of(const KernelCall& call, const ConvAttributes& attributes) {
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape, &y = call.outputs[0].shape;
  std::vector<Axis> axes;
  for (int i = 2; i < x.rank(); ++i) {
    auto at = [&](const std::vector<int64_t>& list, int64_t fallback) {
      size_t k = static_cast<size_t>(i - 2);
      return k < list.size() ? list[k] : fallback;
    };
    Axis axis{x[i], y[i], w[i], at(attributes.strides, 1), at(attributes.dilations, 1), at(attributes.pads, 0)};
    if (attributes.auto_pad == "SAME_UPPER" || attributes.auto_pad == "SAME_LOWER") {
      int64_t total =
          std::max<int64_t>(0, (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 - axis.in);
      axis.before = attributes.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    } else if (attributes.auto_pad == "VALID") {
      axis.before = 0;
    }
    axes.push_back(axis);
  }
  return axes;
}

/// Where output position `to` reads under kernel position `tap` (both flat), as a flat input position; -1: padding.
int64_t source(const std::vector<Axis>& axes, int64_t to, int64_t tap) {
  int64_t position = 0, pitch = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const Axis& axis = axes[i];
    int64_t at = to % axis.out * axis.stride + tap % axis.kernel * axis.dilation - axis.before;
    if (at < 0 || at >= axis.in) return -1;
    position += at * pitch;
    pitch *= axis.in;
    to /= axis.out;
    tap /= axis.kernel;
  }
  return position;
}

/// Conv: x [b, c, in...], w [m, c / group, kernel...], bias? [m] -> [b, m, out...].
KernelStatus conv(const KernelCall& call, const ConvAttributes& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], bias = input(call, 2), &y = call.outputs[0];
  std::vector<Axis> axes = axes_of(call, attributes);
  int rank = x.shape.rank();
  int64_t channels = w.shape[1], out_channels = w.shape[0], taps = w.shape.elements(2, rank);
  int64_t size_in = x.shape.elements(2, rank), size_out = y.shape.elements(2, rank);
  if (attributes.group < 1 || x.shape[1] != channels * attributes.group || out_channels % attributes.group)
    return {KernelCode::bad_value, 1, out_channels};
  Loaded<double> data(x), weights(w);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * out_channels, y.elements() * channels * taps, [&](int64_t plane) {
    int64_t b = plane / out_channels, m = plane % out_channels,
            first = m / (out_channels / attributes.group) * channels;
    double shift = bias.present() ? load_one<double>(bias, m) : 0;
    for (int64_t to = 0; to < size_out; ++to) {
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        int64_t from = source(axes, to, tap);
        if (from < 0) continue;
        for (int64_t c = 0; c < channels; ++c)
          sum += data[(b * x.shape[1] + first + c) * size_in + from] * weights[(m * channels + c) * taps + tap];
      }
      result[static_cast<size_t>(plane * size_out + to)] = sum + shift;
    }
  });
  store_all(y, result);
  return {};
}

}  // namespace

void add_convolve(KernelTable& table) { add<conv>(table, "Conv", floats); }

}  // namespace plait::reference
