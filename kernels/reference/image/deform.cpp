// DeformConv: a convolution whose kernel positions are moved by offsets that depend on the place.
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

/// The value of a plane at a place between its elements: linear along each axis, zero outside.
double interpolated(const double* plane, const std::vector<WindowAxis>& axes, const std::vector<double>& place) {
  double sum = 0;
  for (size_t corner = 0; corner < size_t{1} << axes.size(); ++corner) {
    double share = 1;
    int64_t at = 0;
    for (size_t i = 0; i < axes.size() && share != 0; ++i) {
      const double floor = std::floor(place[i]), rest = place[i] - floor;
      const bool upper = corner >> i & 1;
      const double index = floor + upper;
      const bool inside = index >= 0 && index < static_cast<double>(axes[i].in);  // NaN is not
      share = inside ? share * (upper ? rest : 1 - rest) : 0;
      at = at * axes[i].in + (share != 0 ? static_cast<int64_t>(index) : 0);
    }
    if (share != 0) sum += share * plane[at];
  }
  return sum;
}

/// x [b, c, in...], w [m, c / group, kernel...], offset [b, groups taps n, out...] (n numbers for each tap), bias? [m],
/// mask? [b, groups taps, out...] -> [b, m, out...].
KernelStatus deform_conv(const KernelCall& call, const DeformAttributes& attributes) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &offset = call.inputs[2], &y = call.outputs[0];
  const TensorView bias = input(call, 3), mask = input(call, 4);
  const std::vector<WindowAxis> axes = window_axes(x.shape, y.shape, sizes_from(w.shape, 2), attributes);
  const auto space = static_cast<int64_t>(axes.size());
  const int64_t channels = x.shape[1], read = w.shape[1], made = w.shape[0], group = attributes.group;
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = y.shape.elements(2, y.shape.rank()),
                taps = w.shape.elements(2, w.shape.rank()), groups = attributes.offset_group;
  if (group < 1 || channels != read * group || made % group) return {KernelCode::bad_value, 1, made};
  if (groups < 1 || channels % groups || offset.elements() != x.shape[0] * groups * taps * space * out)
    return {KernelCode::bad_value, 2, offset.elements()};
  if (bias.present() && bias.elements() != made) return {KernelCode::bad_value, 3, bias.elements()};
  if (mask.present() && mask.elements() * space != offset.elements())
    return {KernelCode::bad_value, 4, mask.elements()};
  const Loaded<double> data(x), weights(w), moved(offset);
  const std::vector<double> strengths = mask.present() ? load_all<double>(mask) : std::vector<double>();
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * made, y.elements() * read * taps, [&](int64_t plane) {
    const int64_t b = plane / made, m = plane % made;
    std::vector<double> place(axes.size());
    for (int64_t to = 0; to < out; ++to) {
      double sum = bias.present() ? load_one<double>(bias, m) : 0;
      for (int64_t i = 0; i < read * taps; ++i) {
        const int64_t c = m / (made / group) * read + i / taps, tap = i % taps;
        const int64_t entry = (b * groups + c / (channels / groups)) * taps + tap;
        int64_t window = to, position = tap;
        for (int64_t k = space; k-- > 0;) {
          const WindowAxis& axis = axes[static_cast<size_t>(k)];
          place[static_cast<size_t>(k)] = static_cast<double>(window % axis.out * axis.stride +
                                                              position % axis.kernel * axis.dilation - axis.before) +
                                          moved[(entry * space + k) * out + to];
          window /= axis.out;
          position /= axis.kernel;
        }
        const double value = interpolated(data.data() + (b * channels + c) * in, axes, place);
        sum += value * weights[m * read * taps + i] *
               (strengths.empty() ? 1 : strengths[static_cast<size_t>(entry * out + to)]);
      }
      result[static_cast<size_t>(plane * out + to)] = sum;
    }
  });
  store_all(y, result);
  return {};
}

}  // namespace

void add_deform(KernelTable& table) { add<deform_conv>(table, "DeformConv", floats); }

}  // namespace plait::reference
