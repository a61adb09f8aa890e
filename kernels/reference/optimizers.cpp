// In-place optimizer steps; in double, rounded once.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

KernelStatus accumulate(const KernelCall& call) {
  std::vector<double> sum = load_all<double>(call.inputs[0]);
  const std::vector<double> more = load_all<double>(call.inputs[1]);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  store_all(call.outputs[0], sum);
  return {};
}

KernelStatus assign(const KernelCall& call) {
  std::memcpy(call.outputs[0].data, call.inputs[1].data, static_cast<size_t>(call.inputs[1].bytes()));
  return {};
}

struct AdamAttributes {
  explicit AdamAttributes(const NodeInfo& node)
      : beta1(node.attributes.real("beta1", 0.9)),
        beta2(node.attributes.real("beta2", 0.999)),
        epsilon(node.attributes.real("epsilon", 1e-8)),
        decay(node.attributes.real("decay", 0)) {}
  double beta1, beta2, epsilon, decay;
};

/// w, first, second, gradient, then scale, rate, correction1, correction2 (Loshchilov and Hutter 2019, algorithm 2,
/// with PyTorch's rate decay w as the decay).
KernelStatus adamw(const KernelCall& call, const AdamAttributes& of) {
  std::vector<double> arrays[4];
  for (size_t k = 0; k < 4; ++k) arrays[k] = load_all<double>(call.inputs[k]);
  auto& [w, first, second, gradient] = arrays;
  double numbers[4];
  for (size_t k = 0; k < 4; ++k) numbers[k] = load_one<double>(call.inputs[4 + k], 0);
  const auto [scale, rate, correction1, correction2] = numbers;
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = scale * gradient[i];
    first[i] = of.beta1 * first[i] + (1 - of.beta1) * g;
    second[i] = of.beta2 * second[i] + (1 - of.beta2) * g * g;
    w[i] -= rate * of.decay * w[i];
    w[i] -= rate / correction1 * first[i] / (std::sqrt(second[i] / correction2) + of.epsilon);
    gradient[i] = 0;
  }
  for (size_t k = 0; k < 4; ++k) store_all(call.outputs[k], arrays[k]);
  return {};
}

struct SgdAttributes {
  explicit SgdAttributes(const NodeInfo& node)
      : momentum(node.attributes.real("momentum", 0)), decay(node.attributes.real("decay", 0)) {}
  double momentum, decay;
};

/// w, velocity, gradient, then scale, rate. Decay is decoupled, as AdamW's.
KernelStatus sgd(const KernelCall& call, const SgdAttributes& of) {
  std::vector<double> arrays[3];
  for (size_t k = 0; k < 3; ++k) arrays[k] = load_all<double>(call.inputs[k]);
  auto& [w, velocity, gradient] = arrays;
  const double scale = load_one<double>(call.inputs[3], 0), rate = load_one<double>(call.inputs[4], 0);
  for (size_t i = 0; i < w.size(); ++i) {
    velocity[i] = of.momentum * velocity[i] + scale * gradient[i];
    w[i] -= rate * (of.decay * w[i] + velocity[i]);
    gradient[i] = 0;
  }
  for (size_t k = 0; k < 3; ++k) store_all(call.outputs[k], arrays[k]);
  return {};
}

struct FloorAttribute {
  explicit FloorAttribute(const NodeInfo& node) : floor(node.attributes.real("floor", 0)) {}
  double floor;
};

/// scale * gradient over the root of its square's estimate from row and column, operands `first` and the next one,
/// followed by the scale.
std::vector<double> factored(const KernelCall& call, size_t gradient, size_t first, double floor) {
  std::vector<double> u = load_all<double>(call.inputs[gradient]);
  const std::vector<double> row = load_all<double>(call.inputs[first]),
                            column = load_all<double>(call.inputs[first + 1]);
  const double scale = load_one<double>(call.inputs[first + 2], 0);
  const Shape& shape = call.inputs[gradient].shape;
  const auto k = static_cast<size_t>(shape[shape.rank() - 1]),
             n = static_cast<size_t>(shape.rank() > 1 ? shape[shape.rank() - 2] : 1);
  for (size_t i = 0; i < u.size(); ++i)
    u[i] *= scale / std::sqrt(std::max(row[i / k] * column[i / (n * k) * k + i % k], floor));
  return u;
}

KernelStatus factored_squares(const KernelCall& call, const FloorAttribute& of) {
  double sum = 0;
  for (double u : factored(call, 0, 1, of.floor)) sum += u * u;
  store_all(call.outputs[0], std::vector<double>{sum});
  return {};
}

/// w, gradient, row, column, then scale, shrink, step.
KernelStatus factored_step(const KernelCall& call, const FloorAttribute& of) {
  const std::vector<double> u = factored(call, 1, 2, of.floor);
  std::vector<double> w = load_all<double>(call.inputs[0]);
  const double shrink = load_one<double>(call.inputs[5], 0), step = load_one<double>(call.inputs[6], 0);
  for (size_t i = 0; i < w.size(); ++i) w[i] -= shrink * w[i] + step * u[i];
  store_all(call.outputs[0], w);
  store_all(call.outputs[1], std::vector<double>(w.size()));
  return {};
}

}  // namespace

void add_optimizers(KernelTable& table) {
  add<accumulate>(table, "plait.Accumulate", floats);
  add<assign>(table, "plait.Assign", floats);
  add<adamw>(table, "plait.AdamW", floats);
  add<sgd>(table, "plait.SGD", floats);
  add<factored_squares>(table, "plait.FactoredSquares", floats);
  add<factored_step>(table, "plait.FactoredStep", floats);
}

}  // namespace plait::reference
