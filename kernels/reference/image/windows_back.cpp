// What gradients of convolution and pooling need.
#include <cmath>

#include "core/base/windows.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"
#include "kernels/reference/image/sliding.h"

namespace plait::reference {
namespace {

/// dy [b, m, out...], x [b, c, in...], sizes -> dw [m, c / group, kernel...]: the sum of dy times what each tap read.
KernelStatus conv_weight(const KernelCall& call, const Sliding& attributes) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &dw = call.outputs[0];
  const int64_t made = dy.shape[1], channels = x.shape[1], group = attributes.group, read = dw.shape[1];
  if (dw.shape.rank() != x.shape.rank() || group < 1 || dw.shape[0] != made || made % group ||
      read * group != channels || dy.shape[0] != x.shape[0])
    return {KernelCode::bad_value, 0, made};
  const std::vector<WindowAxis> axes = window_axes(x.shape, dy.shape, sizes_from(dw.shape, 2), attributes);
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = dy.shape.elements(2, dy.shape.rank()),
                taps = dw.shape.elements(2, dw.shape.rank());
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dw.elements()));
  share(call.pool, made * read, dw.elements() * x.shape[0] * out, [&](int64_t row) {
    const int64_t m = row / read, c = m / (made / group) * read + row % read;
    for (int64_t tap = 0; tap < taps; ++tap) {
      double sum = 0;
      for (int64_t b = 0; b < x.shape[0]; ++b)
        for (int64_t to = 0; to < out; ++to)
          if (const int64_t from = window_source(axes, to, tap); from >= 0)
            sum += gradient[(b * made + m) * out + to] * data[(b * channels + c) * in + from];
      result[static_cast<size_t>(row * taps + tap)] = sum;
    }
  });
  store_all(dw, result);
  return {};
}

struct PoolBackAttributes : WindowAttributes {
  explicit PoolBackAttributes(const NodeInfo& node)
      : WindowAttributes(node.attributes), counts_padding(node.attributes.integer("count_include_pad", 0) != 0) {}
  bool counts_padding;
};

/// dy [b, c, out...], x [b, c, in...] -> dx: each window's dy shared by its elements, or given to the greatest.
template <bool greatest>
KernelStatus pool_back(const KernelCall& call, const PoolBackAttributes& attributes) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  if (dy.shape[0] != x.shape[0] || dy.shape[1] != x.shape[1]) return {KernelCode::bad_value, 0, dy.shape[1]};
  const std::vector<WindowAxis> axes = window_axes(x.shape, dy.shape, attributes.kernel, attributes);
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = dy.shape.elements(2, dy.shape.rank());
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dx.elements()));
  share(call.pool, x.shape[0] * x.shape[1], dy.elements() * taps, [&](int64_t plane) {
    for (int64_t to = 0; to < out; ++to) {
      int64_t count = 0, best = -1;
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t from = window_source(axes, to, tap);
        count += from >= 0 || (attributes.counts_padding && window_within_padding(axes, to, tap));
        if (from >= 0 && (best < 0 || data[plane * in + from] > data[plane * in + best])) best = from;
      }
      if (count == 0) continue;
      const double part = gradient[plane * out + to] / (greatest ? 1 : static_cast<double>(count));
      if (greatest && best >= 0) result[static_cast<size_t>(plane * in + best)] += part;
      for (int64_t tap = 0; tap < taps && !greatest; ++tap)
        if (const int64_t from = window_source(axes, to, tap); from >= 0)
          result[static_cast<size_t>(plane * in + from)] += part;
    }
  });
  store_all(dx, result);
  return {};
}

struct PowerPoolAttributes : WindowAttributes {
  explicit PowerPoolAttributes(const NodeInfo& node)
      : WindowAttributes(node.attributes), p(static_cast<double>(node.attributes.integer("p", 2))) {}
  double p;
};

/// dy [b, c, out...], x [b, c, in...] -> dx = dy y^(1 - p) |x|^(p - 1) with the sign of x, over the windows (all of space without
/// kernel_shape) of norm y; 0 where y is.
KernelStatus power_pool_back(const KernelCall& call, const PowerPoolAttributes& attributes) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &dx = call.outputs[0];
  if (dy.shape.rank() != x.shape.rank() || dy.shape[0] != x.shape[0] || dy.shape[1] != x.shape[1])
    return {KernelCode::bad_value, 0, dy.shape[1]};
  const std::vector<WindowAxis> axes = window_axes(
      x.shape, dy.shape, attributes.kernel.empty() ? sizes_from(x.shape, 2) : attributes.kernel, attributes);
  int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.kernel;
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = dy.shape.elements(2, dy.shape.rank());
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dx.elements()));
  share(call.pool, x.shape[0] * x.shape[1], dy.elements() * taps, [&](int64_t plane) {
    for (int64_t to = 0; to < out; ++to) {
      auto each = [&](auto f) {
        for (int64_t tap = 0; tap < taps; ++tap)
          if (const int64_t from = window_source(axes, to, tap); from >= 0) f(plane * in + from);
      };
      double sum = 0;
      each([&](int64_t at) { sum += std::pow(std::fabs(data[at]), attributes.p); });
      if (sum == 0) continue;
      const double scale = gradient[plane * out + to] * std::pow(sum, 1 / attributes.p - 1);
      each([&](int64_t at) {
        if (data[at] != 0)
          result[static_cast<size_t>(at)] +=
              std::copysign(scale * std::pow(std::fabs(data[at]), attributes.p - 1), data[at] * scale);
      });
    }
  });
  store_all(dx, result);
  return {};
}

}  // namespace

void add_windows_back(KernelTable& table) {
  add<conv_weight>(table, "plait.ConvWeight", floats);
  add<pool_back<true>>(table, "plait.MaxPoolBack", floats);
  add<pool_back<false>>(table, "plait.AveragePoolBack", floats);
  add<power_pool_back>(table, "plait.LpPoolBack", floats);
}

}  // namespace plait::reference
