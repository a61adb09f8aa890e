// DeformConv and its gradients: a convolution whose kernel positions are moved by offsets that depend on the place.
#include <cmath>

#include "core/base/windows.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

struct DeformAttributes : WindowAttributes {
  explicit DeformAttributes(const NodeInfo& node)
      : WindowAttributes(node.attributes), offset_group(node.attributes.integer("offset_group", 1)) {}
  int64_t offset_group;
};

/// Calls f(element, weight, number of the corner) for the elements around a place between them: linear along each axis, none outside.
template <class F>
void each_corner(const std::vector<WindowAxis>& axes, const std::vector<double>& place, F f) {
  for (size_t corner = 0; corner < size_t{1} << axes.size(); ++corner) {
    double share = 1;
    int64_t at = 0;
    bool within = true;
    for (size_t i = 0; i < axes.size() && within; ++i) {
      const double floor = std::floor(place[i]), rest = place[i] - floor;
      const bool upper = corner >> i & 1;
      const double index = floor + upper;
      within = index >= 0 && index < static_cast<double>(axes[i].in);  // NaN is not
      share *= upper ? rest : 1 - rest;
      at = at * axes[i].in + (within ? static_cast<int64_t>(index) : 0);
    }
    if (within) f(at, share, corner);
  }
}

double interpolated(const double* plane, const std::vector<WindowAxis>& axes, const std::vector<double>& place) {
  double sum = 0;
  each_corner(axes, place, [&](int64_t at, double share, size_t) {
    if (share != 0) sum += share * plane[at];
  });
  return sum;
}

/// Operands and sizes; `first` is the operand x, w and offset follow, and mask is operand `mask_at`.
struct DeformCall {
  DeformCall(const KernelCall& call, const DeformAttributes& attributes, const Shape& y, size_t first, size_t mask_at)
      : x(call.inputs[first]),
        w(call.inputs[first + 1]),
        offset(call.inputs[first + 2]),
        mask(input(call, mask_at)),
        axes(window_axes(x.shape, y, sizes_from(w.shape, 2), attributes)),
        space(static_cast<int64_t>(axes.size())),
        batch(x.shape[0]),
        channels(x.shape[1]),
        read(w.shape[1]),
        made(w.shape[0]),
        group(attributes.group),
        groups(attributes.offset_group),
        in(x.shape.elements(2, x.shape.rank())),
        out(y.elements(2, y.rank())),
        taps(w.shape.elements(2, w.shape.rank())),
        data(x),
        weights(w),
        moved(offset) {
    if (mask.present()) strengths = load_all<double>(mask);
  }

  KernelStatus check(const Shape& y, int32_t first, int32_t mask_at) const {
    if (group < 1 || channels != read * group || made % group) return {KernelCode::bad_value, first + 1, made};
    if (groups < 1 || channels % groups || offset.elements() != batch * groups * taps * space * out)
      return {KernelCode::bad_value, first + 2, offset.elements()};
    if (mask.present() && mask.elements() * space != offset.elements())
      return {KernelCode::bad_value, mask_at, mask.elements()};
    if (y[0] != batch || y[1] != made) return {KernelCode::bad_value, 0, y[1]};
    return {};
  }

  /// Which of [batch, groups, taps] moves a tap of channel c.
  int64_t entry(int64_t b, int64_t c, int64_t tap) const {
    return (b * groups + c / (channels / groups)) * taps + tap;
  }
  double strength(int64_t entry, int64_t to) const {
    return strengths.empty() ? 1 : strengths[static_cast<size_t>(entry * out + to)];
  }
  /// Where window `to` reads tap `tap`.
  void find_place(int64_t entry, int64_t to, int64_t tap, std::vector<double>& place) const {
    place.resize(axes.size());
    int64_t window = to, position = tap;
    for (int64_t k = space; k-- > 0;) {
      const WindowAxis& axis = axes[static_cast<size_t>(k)];
      place[static_cast<size_t>(k)] = static_cast<double>(window % axis.out * axis.stride +
                                                          position % axis.kernel * axis.dilation - axis.before) +
                                      moved[(entry * space + k) * out + to];
      window /= axis.out;
      position /= axis.kernel;
    }
  }
  const double* plane(int64_t b, int64_t c) const { return data.data() + (b * channels + c) * in; }

  const TensorView &x, &w, &offset;
  const TensorView mask;
  std::vector<WindowAxis> axes;
  int64_t space, batch, channels, read, made, group, groups, in, out, taps;
  Loaded<double> data, weights, moved;
  std::vector<double> strengths;
};

/// x [b, c, in...], w [m, c / group, kernel...], offset [b, groups taps n, out...] (n numbers for each tap), bias? [m],
/// mask? [b, groups taps, out...] -> [b, m, out...].
KernelStatus deform_conv(const KernelCall& call, const DeformAttributes& attributes) {
  const TensorView &y = call.outputs[0], bias = input(call, 3);
  const DeformCall n(call, attributes, y.shape, 0, 4);
  if (const KernelStatus status = n.check(y.shape, 0, 4); status.code != KernelCode::ok) return status;
  if (bias.present() && bias.elements() != n.made) return {KernelCode::bad_value, 3, bias.elements()};
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, n.batch * n.made, y.elements() * n.read * n.taps, [&](int64_t plane) {
    const int64_t b = plane / n.made, m = plane % n.made;
    std::vector<double> place;
    for (int64_t to = 0; to < n.out; ++to) {
      double sum = bias.present() ? load_one<double>(bias, m) : 0;
      for (int64_t i = 0; i < n.read * n.taps; ++i) {
        const int64_t c = m / (n.made / n.group) * n.read + i / n.taps, tap = i % n.taps, entry = n.entry(b, c, tap);
        n.find_place(entry, to, tap, place);
        sum +=
            interpolated(n.plane(b, c), n.axes, place) * n.weights[m * n.read * n.taps + i] * n.strength(entry, to);
      }
      result[static_cast<size_t>(plane * n.out + to)] = sum;
    }
  });
  store_all(y, result);
  return {};
}

struct DeformGradients {
  explicit DeformGradients(const DeformCall& n)
      : x(static_cast<size_t>(n.x.elements())),
        offset(static_cast<size_t>(n.offset.elements())),
        mask(n.mask.present() ? static_cast<size_t>(n.mask.elements()) : 0) {}
  std::vector<double> x, offset, mask;
};

/// What a tap of channel c under window `to` gets, where `column` is the gradient of what it read, times its strength.
void spread_tap(const DeformCall& n, int64_t b, int64_t c, int64_t tap, int64_t to, double column,
                std::vector<double>& place, DeformGradients& gradients) {
  const int64_t entry = n.entry(b, c, tap);
  n.find_place(entry, to, tap, place);
  const double own = column * n.strength(entry, to);
  const double* plane = n.plane(b, c);
  double value = 0;
  each_corner(n.axes, place, [&](int64_t at, double share, size_t corner) {
    value += share * plane[at];
    gradients.x[static_cast<size_t>((b * n.channels + c) * n.in + at)] += share * own;
    for (int64_t k = 0; k < n.space; ++k) {
      double slope = corner >> k & 1 ? 1 : -1;
      for (int64_t j = 0; j < n.space; ++j) {
        if (j == k) continue;
        const double rest = place[static_cast<size_t>(j)] - std::floor(place[static_cast<size_t>(j)]);
        slope *= corner >> j & 1 ? rest : 1 - rest;
      }
      gradients.offset[static_cast<size_t>((entry * n.space + k) * n.out + to)] += slope * plane[at] * own;
    }
  });
  if (!gradients.mask.empty()) gradients.mask[static_cast<size_t>(entry * n.out + to)] += value * column;
}

/// dy [b, m, out...], x, w, offset, mask? -> dx?, dw?, doffset?, dmask?
KernelStatus deform_conv_back(const KernelCall& call, const DeformAttributes& attributes) {
  const TensorView& dy = call.inputs[0];
  const DeformCall n(call, attributes, dy.shape, 1, 4);
  if (const KernelStatus status = n.check(dy.shape, 1, 4); status.code != KernelCode::ok) return status;
  const Loaded<double> gradient(dy);
  const int64_t work = dy.elements() * n.read * n.taps, each = n.channels / n.groups;
  DeformGradients gradients(n);
  share(call.pool, n.batch * n.groups, work, [&](int64_t row) {
    const int64_t b = row / n.groups;
    std::vector<double> place;
    for (int64_t c = row % n.groups * each; c < (row % n.groups + 1) * each; ++c)
      for (int64_t i = 0; i < n.taps * n.out; ++i) {
        const int64_t tap = i / n.out, to = i % n.out, first = c / n.read * (n.made / n.group);
        double column = 0;
        for (int64_t m = first; m < first + n.made / n.group; ++m)
          column += gradient[(b * n.made + m) * n.out + to] * n.weights[(m * n.read + c % n.read) * n.taps + tap];
        spread_tap(n, b, c, tap, to, column, place, gradients);
      }
  });
  const TensorView dx = output(call, 0), dw = output(call, 1), doffset = output(call, 2), dmask = output(call, 3);
  if (dx.present()) store_all(dx, gradients.x);
  if (doffset.present()) store_all(doffset, gradients.offset);
  if (dmask.present()) store_all(dmask, gradients.mask);
  if (!dw.present()) return {};
  std::vector<double> result(static_cast<size_t>(dw.elements()));
  share(call.pool, n.made * n.read, work, [&](int64_t row) {
    const int64_t m = row / n.read, c = m / (n.made / n.group) * n.read + row % n.read;
    std::vector<double> place;
    for (int64_t i = 0; i < n.taps * n.batch * n.out; ++i) {
      const int64_t tap = i / (n.batch * n.out), b = i / n.out % n.batch, to = i % n.out, entry = n.entry(b, c, tap);
      n.find_place(entry, to, tap, place);
      result[static_cast<size_t>(row * n.taps + tap)] += gradient[(b * n.made + m) * n.out + to] *
                                                         interpolated(n.plane(b, c), n.axes, place) *
                                                         n.strength(entry, to);
    }
  });
  store_all(dw, result);
  return {};
}

}  // namespace

void add_deform(KernelTable& table) {
  add<deform_conv>(table, "DeformConv", floats);
  add<deform_conv_back>(table, "plait.DeformConvBack", floats);
}

}  // namespace plait::reference
