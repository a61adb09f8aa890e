// Gradients of normalisations along lines: plait.RMSNormBack, plait.LayerNormBack, plait.SoftmaxBack.
#include <cmath>
#include <vector>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct NormBackAttributes {
  explicit NormBackAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", -1)), epsilon(node.attributes.real("epsilon", 1e-5)) {}
  int64_t axis;
  double epsilon;
};

/// x [..., d], scale (broadcast to x), dy [..., d] -> dx, dscale?, dbias? (as scale). With z = (x - mean) /
/// deviation, of which y = scale z + bias, and g = scale dy: dx = (g - mean(g) - z mean(g z)) / deviation, where an
/// RMSNorm has no mean(g); dscale is the sum of dy z, dbias that of dy.
template <bool centre>
KernelStatus norm_back(const KernelCall& call, const NormBackAttributes& attributes) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1], &dy = call.inputs[2];
  const int axis = positive_axis(attributes.axis, x.shape.rank());
  const int64_t width = x.shape.elements(axis, x.shape.rank()), rows = x.shape.elements(0, axis);
  const std::vector<int64_t> scale_at = offsets_of(x.shape, broadcast_strides(scale.shape, x.shape));
  const std::vector<double> factors = load_all<double>(scale);
  std::vector<double> dscale(factors.size()), dbias(factors.size());
  std::vector<double> z(static_cast<size_t>(width)), g = z;
  const auto count = static_cast<double>(width);
  for (int64_t i = 0; i < rows; ++i) {
    load(x, i * width, width, z.data());
    load(dy, i * width, width, g.data());
    double mean = 0, variance = 0, mean_g = 0, mean_gz = 0;
    if (centre)
      for (double value : z) mean += value / count;
    for (double value : z) variance += (value - mean) * (value - mean) / count;
    const double inverse = 1 / std::sqrt(variance + attributes.epsilon);
    for (size_t j = 0; j < z.size(); ++j) {
      const auto at = static_cast<size_t>(scale_at[static_cast<size_t>(i * width) + j]);
      z[j] = (z[j] - mean) * inverse;
      dscale[at] += g[j] * z[j];
      dbias[at] += g[j];
      g[j] *= factors[at];
      mean_g += g[j] / count;
      mean_gz += g[j] * z[j] / count;
    }
    for (size_t j = 0; j < z.size(); ++j) g[j] = (g[j] - (centre ? mean_g : 0) - z[j] * mean_gz) * inverse;
    store(call.outputs[0], i * width, width, g.data());
  }
  if (output(call, 1).present()) store_all(call.outputs[1], dscale);
  if (output(call, 2).present()) store_all(call.outputs[2], dbias);
  return {};
}

/// y, dy -> y (dy - sum of y dy) along an axis.
KernelStatus softmax_back(const KernelCall& call, const NormBackAttributes& attributes) {
  std::vector<double> y = load_all<double>(call.inputs[0]), dy = load_all<double>(call.inputs[1]);
  const Shape& shape = call.inputs[0].shape;
  const int axis = shape.rank() ? positive_axis(attributes.axis, shape.rank()) : 0;
  const int64_t size = shape.rank() ? shape[axis] : 1,
                inner = shape.rank() ? shape.elements(axis + 1, shape.rank()) : 1;
  for (int64_t line = 0; line < (size ? shape.elements() / size : 0); ++line) {
    const int64_t start = line / inner * size * inner + line % inner;
    double sum = 0;
    auto at = [&](int64_t j) { return static_cast<size_t>(start + j * inner); };
    for (int64_t j = 0; j < size; ++j) sum += y[at(j)] * dy[at(j)];
    for (int64_t j = 0; j < size; ++j) dy[at(j)] = y[at(j)] * (dy[at(j)] - sum);
  }
  store_all(call.outputs[0], dy);
  return {};
}

}  // namespace

void add_normalize_back(KernelTable& table) {
  add<norm_back<false>>(table, "plait.RMSNormBack", floats);
  add<norm_back<true>>(table, "plait.LayerNormBack", floats);
  add<softmax_back>(table, "plait.SoftmaxBack", floats);
}

}  // namespace plait::reference
