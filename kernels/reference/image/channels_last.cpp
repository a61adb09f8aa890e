// Convolution and pooling of images [b, space, c], and chains of element-wise ops.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/steps.h"
#include "kernels/reference/image/register.h"
#include "kernels/reference/image/sliding.h"

namespace plait::reference {
namespace {

/// [b, c, space] for [b, space, c], as `window_axes` counts dims.
Shape channels_first(const Shape& shape) {
  Shape out{shape[0], shape.back(1)};
  for (int i = 1; i + 1 < shape.rank(); ++i) out.push_back(shape[i]);
  return out;
}

struct LastConv : WindowAttributes {
  explicit LastConv(const NodeInfo& node)
      : WindowAttributes(node.attributes), steps(steps_of(node, node.inputs.size() - 1)) {}
  std::vector<ElementwiseStep> steps;
};

/// x [b, in, c], w [m, c / group, kernel], operands of the steps -> [b, out, m].
KernelStatus channels_last_conv(const KernelCall& call, const LastConv& a) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const std::vector<WindowAxis> axes =
      window_axes(channels_first(x.shape), channels_first(y.shape), sizes_from(w.shape, 2), a);
  const int64_t c = x.shape.back(1), m = w.shape[0], read = w.shape[1], taps = w.shape.elements(2, w.shape.rank());
  if (a.group < 1 || read * a.group != c || m % a.group) return {KernelCode::bad_value, 1, m};
  const int64_t in = x.shape.elements(1, x.shape.rank() - 1), out = y.shape.elements(1, y.shape.rank() - 1);
  const Loaded<double> data(x), weights(w);
  std::vector<double> sums(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * out, y.elements() * read * taps, [&](int64_t row) {
    const double* image = data.data() + row / out * in * c;
    for (int64_t j = 0; j < m; ++j) {
      const int64_t first = j / (m / a.group) * read;
      double sum = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t from = window_source(axes, row % out, tap);
        if (from < 0) continue;
        for (int64_t k = 0; k < read; ++k) sum += image[from * c + first + k] * weights[(j * read + k) * taps + tap];
      }
      sums[static_cast<size_t>(row * m + j)] = sum;
    }
  });
  std::vector<std::vector<double>> registers{std::move(sums)};
  for (size_t k = 2; k < call.inputs.size(); ++k) registers.push_back(repeated(call.inputs[k], y.shape));
  store_all(y, run_steps(a.steps, std::move(registers)));
  return {};
}

struct LastPool : WindowAttributes {
  explicit LastPool(const NodeInfo& node)
      : WindowAttributes(node.attributes), counts_padding(node.attributes.integer("count_include_pad", 0) != 0) {
    const std::string kind = node.attributes.string("kind", "");
    if (kind != "max" && kind != "mean")
      throw Error(Code::bad_model,
                  cat("plait.ChannelsLastPool: kind is ", quote(kind), ", expected \"max\" or \"mean\""));
    mean = kind == "mean";
  }
  bool counts_padding, mean = false;
};

KernelStatus channels_last_pool(const KernelCall& call, const LastPool& a) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<WindowAxis> axes = window_axes(channels_first(x.shape), channels_first(y.shape), a.kernel, a);
  const int64_t c = x.shape.back(1), in = x.shape.elements(1, x.shape.rank() - 1),
                out = y.shape.elements(1, y.shape.rank() - 1);
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  const Loaded<double> data(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  for (int64_t row = 0; row < x.shape[0] * out; ++row)
    for (int64_t j = 0; j < c; ++j) {
      double sum = 0, best = -std::numeric_limits<double>::infinity();
      int64_t count = 0;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t from = window_source(axes, row % out, tap);
        count += from >= 0 || (a.counts_padding && window_within_padding(axes, row % out, tap));
        if (from < 0) continue;
        const double value = data[(row / out * in + from) * c + j];
        sum += value;
        if (value > best || std::isnan(value)) best = value;
      }
      result[static_cast<size_t>(row * c + j)] = !a.mean ? best : count ? sum / static_cast<double>(count) : 0;
    }
  store_all(y, result);
  return {};
}

struct Chain {
  explicit Chain(const NodeInfo& node)
      : steps(steps_of(node, node.inputs.size())),
        coded(node.attributes.has("to")),
        zero(static_cast<double>(node.attributes.integer("zero", 0))) {}
  std::vector<ElementwiseStep> steps;
  bool coded;
  double zero;
};

KernelStatus elementwise_chain(const KernelCall& call, const Chain& chain) {
  std::vector<std::vector<double>> registers;
  for (const TensorView& operand : call.inputs) registers.push_back(repeated(operand, call.outputs[0].shape));
  std::vector<double> results = run_steps(chain.steps, std::move(registers));
  for (size_t i = 0; chain.coded && i < results.size(); ++i) {
    if (std::isnan(results[i])) return {KernelCode::not_a_number, 0, static_cast<int64_t>(i)};
    const double low = call.outputs[0].dtype == DType::u8 ? 0 : -128;
    results[i] = std::clamp(std::nearbyint(results[i]) + chain.zero, low, low + 255);
  }
  store_all(call.outputs[0], results);
  return {};
}

}  // namespace

void add_channels_last(KernelTable& table) {
  add<channels_last_conv>(table, "plait.ChannelsLastConv", floats);
  add<channels_last_pool>(table, "plait.ChannelsLastPool", floats);
  add<elementwise_chain>(table, "plait.Elementwise", anything);
}

}  // namespace plait::reference
