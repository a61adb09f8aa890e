// Steps of optimizers, in place; in double, rounded once.
#include <cmath>
#include <cstring>

#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/numbers.h"

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

/// w, first, second, gradient, then scale, rate, correction1, correction2 (Loshchilov and Hutter 2019, algorithm 2, with
/// PyTorch's rate decay w as the decay).
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

}  // namespace

void add_optimizers(KernelTable& table) {
  add<accumulate>(table, "plait.Accumulate", floats);
  add<assign>(table, "plait.Assign", floats);
  add<adamw>(table, "plait.AdamW", floats);
  add<sgd>(table, "plait.SGD", floats);
}

}  // namespace plait::reference
