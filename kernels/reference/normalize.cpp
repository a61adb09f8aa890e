// Normalisation by mean and variance, or by the root of the mean square, of a row, a channel or a group.
#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct Moments {
  double mean, inverse;  ///< inverse = 1 / sqrt(variance + epsilon)
};

/// x becomes (x - mean) / sqrt(variance + epsilon); without `centre` the mean counts as 0 (RMSNorm: Zhang and
/// Sennrich, "Root Mean Square Layer Normalization").
Moments standardize(std::span<double> x, double epsilon, bool centre) {
  double count = static_cast<double>(x.size()), mean = 0, variance = 0;
  if (centre) {
    for (double value : x) mean += value;
    mean /= count;
  }
  for (double value : x) variance += (value - mean) * (value - mean);
  double inverse = 1 / std::sqrt(variance / count + epsilon);
  for (double& value : x) value = (value - mean) * inverse;
  return {mean, inverse};
}

struct NormAttributes {
  explicit NormAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", -1)),
        groups(node.attributes.integer("num_groups", 1)),
        epsilon(node.attributes.real("epsilon", node.op.substr(0, 18) == "com.microsoft.Skip" ? 1e-12 : 1e-5)) {
    if (groups < 1) throw Error(Code::bad_model, cat(node.op, ": num_groups is ", groups));
  }
  int64_t axis, groups;
  double epsilon;
};

/// LayerNormalization (centre) and RMSNormalization: x [..., d], scale [d], bias? [d] -> y, mean?, inverse_std?,
/// where d are the dimensions from `axis` on, to which scale and bias broadcast.
template <bool centre>
KernelStatus normalize_rows(const KernelCall& call, const NormAttributes& attributes) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1], bias = input(call, 2), &y = call.outputs[0];
  int axis = positive_axis(attributes.axis, x.shape.rank());
  int64_t width = x.shape.elements(axis, x.shape.rank()), rows = x.shape.elements(0, axis);
  // The scale may also differ between rows, if it has more dimensions than d.
  std::vector<int64_t> scale_at = offsets_of(x.shape, broadcast_strides(scale.shape, x.shape)), bias_at;
  if (bias.present()) bias_at = offsets_of(x.shape, broadcast_strides(bias.shape, x.shape));
  std::vector<double> factors = load_all<double>(scale), shifts;
  if (bias.present()) shifts = load_all<double>(bias);
  std::vector<double> row(static_cast<size_t>(width));
  for (int64_t i = 0; i < rows; ++i) {
    load(x, i * width, width, row.data());
    Moments moments = standardize(row, attributes.epsilon, centre);
    for (int64_t j = 0; j < width; ++j) {
      double& value = row[static_cast<size_t>(j)];
      auto at = static_cast<size_t>(i * width + j);
      value *= factors[static_cast<size_t>(scale_at[at])];
      if (bias.present()) value += shifts[static_cast<size_t>(bias_at[at])];
    }
    store(y, i * width, width, row.data());
    // Of RMSNorm-like ops the only second output is the inverse.
    if (output(call, 1).present()) store_one(call.outputs[1], i, centre ? moments.mean : moments.inverse);
    if (output(call, 2).present()) store_one(call.outputs[2], i, moments.inverse);
  }
  return {};
}

/// com.microsoft SkipLayerNormalization: input, skip, gamma, beta?, bias?; SkipSimplifiedLayerNormalization: input,
/// skip, gamma, bias? -> y, mean?, inverse_std?, sum?. sum = input + skip + bias, y its normalisation. skip repeats
/// over the batch when it is smaller.
template <bool centre>
KernelStatus skip_normalize(const KernelCall& call, const NormAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  TensorView beta = centre ? input(call, 3) : TensorView{}, bias = input(call, centre ? 4 : 3),
             sums = output(call, 3);
  int64_t width = x.shape.back(1);
  std::vector<double> skip = load_all<double>(call.inputs[1]), gamma = load_all<double>(call.inputs[2]), shift, extra;
  if (beta.present()) shift = load_all<double>(beta);
  if (bias.present()) extra = load_all<double>(bias);
  std::vector<double> row(static_cast<size_t>(width));
  for (int64_t i = 0; i < x.elements() / width; ++i) {
    load(x, i * width, width, row.data());
    for (size_t j = 0; j < row.size(); ++j)
      row[j] += skip[(static_cast<size_t>(i * width) + j) % skip.size()] + (extra.empty() ? 0 : extra[j]);
    if (sums.present()) store(sums, i * width, width, row.data());
    Moments moments = standardize(row, attributes.epsilon, centre);
    for (size_t j = 0; j < row.size(); ++j) row[j] = row[j] * gamma[j] + (shift.empty() ? 0 : shift[j]);
    store(y, i * width, width, row.data());
    if (output(call, 1).present()) store_one(call.outputs[1], i, moments.mean);
    if (output(call, 2).present()) store_one(call.outputs[2], i, moments.inverse);
  }
  return {};
}

/// GroupNormalization and InstanceNormalization (a group a channel): x [b, c, ...], scale [c], bias [c].
template <bool instance>
KernelStatus normalize_groups(const KernelCall& call, const NormAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  std::vector<double> scale = load_all<double>(call.inputs[1]), bias = load_all<double>(call.inputs[2]);
  int64_t channels = x.shape[1], groups = instance ? channels : attributes.groups;
  if (y.elements() == 0) return {};
  if (groups < 1 || channels % groups) return {KernelCode::bad_value, 0, channels};
  int64_t plane = x.shape.elements(2, x.shape.rank()), width = channels / groups * plane;
  std::vector<double> group(static_cast<size_t>(width));
  for (int64_t i = 0; i < x.shape[0] * groups; ++i) {
    load(x, i * width, width, group.data());
    standardize(group, attributes.epsilon, true);
    for (int64_t j = 0; j < width; ++j) {
      auto channel = static_cast<size_t>((i % groups) * (channels / groups) + j / plane);
      group[static_cast<size_t>(j)] = group[static_cast<size_t>(j)] * scale[channel] + bias[channel];
    }
    store(y, i * width, width, group.data());
  }
  return {};
}

struct BatchNormAttributes {
  explicit BatchNormAttributes(const NodeInfo& node)
      : training(node.attributes.integer("training_mode", 0) != 0),
        epsilon(node.attributes.real("epsilon", 1e-5)),
        momentum(node.attributes.real("momentum", 0.9)) {}
  bool training;
  double epsilon, momentum;
};

/// BatchNormalization: x [b, c, ...], scale, bias, mean, variance [c] -> y, running mean?, running variance?. In
/// training mode the batch's own moments are used, and move the running ones by 1 - momentum.
KernelStatus batch_normalize(const KernelCall& call, const BatchNormAttributes& attributes) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  std::vector<double> parts[4];
  for (size_t k = 0; k < 4; ++k) parts[k] = load_all<double>(call.inputs[k + 1]);
  auto& [scale, bias, mean, variance] = parts;
  int64_t channels = x.shape.rank() > 1 ? x.shape[1] : 1,
          plane = x.shape.elements(std::min(2, x.shape.rank()), x.shape.rank());
  std::vector<double> values = load_all<double>(x);
  if (attributes.training) {
    std::vector<double> running[2] = {mean, variance};
    std::fill(mean.begin(), mean.end(), 0.0);
    std::fill(variance.begin(), variance.end(), 0.0);
    double count = static_cast<double>(x.elements()) / static_cast<double>(channels);
    auto channel = [&](size_t i) { return static_cast<size_t>(static_cast<int64_t>(i) / plane % channels); };
    for (size_t i = 0; i < values.size(); ++i) mean[channel(i)] += values[i] / count;
    for (size_t i = 0; i < values.size(); ++i)
      variance[channel(i)] += (values[i] - mean[channel(i)]) * (values[i] - mean[channel(i)]) / count;
    for (size_t k = 0; k < 2; ++k) {
      for (size_t c = 0; c < mean.size(); ++c)
        running[k][c] = attributes.momentum * running[k][c] + (1 - attributes.momentum) * parts[k + 2][c];
      if (output(call, k + 1).present()) store_all(call.outputs[k + 1], running[k]);
    }
  }
  for (size_t i = 0; i < values.size(); ++i) {
    auto c = static_cast<size_t>(static_cast<int64_t>(i) / plane % channels);
    values[i] = (values[i] - mean[c]) / std::sqrt(variance[c] + attributes.epsilon) * scale[c] + bias[c];
  }
  store_all(y, values);
  return {};
}

}  // namespace

void add_normalize(KernelTable& table) {
  add<normalize_rows<true>>(table, "LayerNormalization", floats);
  add<normalize_rows<false>>(table, "RMSNormalization", floats);
  // The same op under exporters' names: in the empty domain as well as Microsoft's.
  add<normalize_rows<false>>(table, "SimplifiedLayerNormalization", floats);
  add<normalize_rows<false>>(table, "com.microsoft.SimplifiedLayerNormalization", floats);
  add<skip_normalize<true>>(table, "com.microsoft.SkipLayerNormalization", floats);
  add<skip_normalize<false>>(table, "com.microsoft.SkipSimplifiedLayerNormalization", floats);
  add<normalize_groups<false>>(table, "GroupNormalization", floats);
  add<normalize_groups<true>>(table, "InstanceNormalization", floats);
  add<batch_normalize>(table, "BatchNormalization", floats);
}

}  // namespace plait::reference
