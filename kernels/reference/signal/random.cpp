// Random numbers by counter: element i of a node depends on its seed, the iteration of a loop that it is in, and i only.
#include <bit>
#include <cmath>
#include <numbers>

#include "core/base/counter_random.h"
#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/signal/register.h"

namespace plait::reference {
namespace {

struct RandomAttributes {
  explicit RandomAttributes(const NodeInfo& node)
      : seed(std::bit_cast<uint64_t>(node.attributes.real("seed", 0))),
        mean(node.attributes.real("mean", 0)),
        scale(node.attributes.real("scale", 1)),
        low(node.attributes.real("low", 0)),
        high(node.attributes.real("high", 1)) {}
  double uniform(int64_t i, uint32_t stream = 0) const {
    return counter_uniform(RandomUse::graph_op, seed, stream, static_cast<uint64_t>(i));
  }
  /// For a call: each iteration of a loop draws by a seed of its own.
  RandomAttributes in(const KernelCall& call) const {
    RandomAttributes out = *this;
    if (call.iteration) out.seed = mixed_bits(seed, call.iteration);
    return out;
  }
  uint64_t seed;
  double mean, scale, low, high;
};

/// Box and Muller's method (1958): one number of each pair.
double normal(const RandomAttributes& a, int64_t i) {
  return std::sqrt(-2 * std::log(1 - a.uniform(i))) * std::cos(2 * std::numbers::pi * a.uniform(i, 1));
}

KernelStatus random_normal(const KernelCall& call, const RandomAttributes& attributes) {
  const RandomAttributes a = attributes.in(call);
  const TensorView& y = call.outputs[0];
  StopCheck stop;
  for (int64_t i = 0; i < y.elements(); ++i) {
    stop.count();
    store_one(y, i, a.mean + a.scale * normal(a, i));
  }
  return {};
}

KernelStatus random_uniform(const KernelCall& call, const RandomAttributes& attributes) {
  const RandomAttributes a = attributes.in(call);
  const TensorView& y = call.outputs[0];
  StopCheck stop;
  for (int64_t i = 0; i < y.elements(); ++i) {
    stop.count();
    store_one(y, i, a.low + (a.high - a.low) * a.uniform(i));
  }
  return {};
}

KernelStatus bernoulli(const KernelCall& call, const RandomAttributes& attributes) {
  const RandomAttributes a = attributes.in(call);
  const TensorView& y = call.outputs[0];
  StopCheck stop;
  for (int64_t i = 0; i < y.elements(); ++i) {
    stop.count();
    store_one<int64_t>(y, i, a.uniform(i) < load_one<double>(call.inputs[0], i) ? 1 : 0);
  }
  return {};
}

/// x [b, classes] -> [b, samples]: the class where the running sum of e^x passes a uniform share of the whole.
KernelStatus multinomial(const KernelCall& call, const RandomAttributes& attributes) {
  const RandomAttributes a = attributes.in(call);
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t classes = x.shape[1], samples = y.shape[1];
  if (classes < 1 && y.elements() > 0) return {KernelCode::bad_value, 0, classes};
  std::vector<double> sums(static_cast<size_t>(classes));
  StopCheck stop;
  for (int64_t i = 0; i < y.elements(); ++i) {
    stop.count();
    if (i % samples == 0) {
      load(x, i / samples * classes, classes, sums.data());
      const double most = *std::max_element(sums.begin(), sums.end());
      double sum = 0;
      for (double& value : sums) value = sum += std::exp(value - most);
      if (!(sum > 0)) return {KernelCode::not_a_number, 0, i / samples};
    }
    const auto found = std::upper_bound(sums.begin(), sums.end(), a.uniform(i) * sums.back());
    store_one<int64_t>(y, i, std::min<int64_t>(found - sums.begin(), classes - 1));
  }
  return {};
}

}  // namespace

void add_random(KernelTable& table) {
  add<random_normal>(table, "RandomNormal", Domain{"any", nullptr});
  add<random_uniform>(table, "RandomUniform", Domain{"any", nullptr});
  add<random_normal>(table, "RandomNormalLike", anything);
  add<random_uniform>(table, "RandomUniformLike", anything);
  add<bernoulli>(table, "Bernoulli", floats);
  add<multinomial>(table, "Multinomial", floats);
}

}  // namespace plait::reference
