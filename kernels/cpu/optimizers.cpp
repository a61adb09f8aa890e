// Steps of optimizers, in place: plait.AdamW and plait.SGD. One pass over arrays that are far larger than caches. The loops
// are in training_loops.cpp.
#include <algorithm>

#include "kernels/cpu/register.h"
#include "kernels/cpu/share.h"
#include "kernels/cpu/training_loops.h"

namespace plait::cpu {
namespace {

constexpr int64_t grain = 1024;  ///< elements: shares begin at multiples of it

bool accepts(const NodeInfo& node) {
  auto is_f32 = [](const OperandInfo& operand) { return operand.dtype == DType::f32; };
  return std::all_of(node.inputs.begin(), node.inputs.end(), is_f32) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_f32);
}

/// Calls step(from, to, n) for shares of the N arrays that the inputs begin with and the outputs are.
template <size_t N, class Step>
void each_share(const KernelCall& call, Step step) {
  share_ranges(call.pool, call.inputs[0].elements(), grain, 2 * N, [&](int64_t begin, int64_t end, int) {
    const float* from[N];
    float* to[N];
    for (size_t k = 0; k < N; ++k)
      from[k] = call.inputs[k].as<float>() + begin, to[k] = call.outputs[k].as<float>() + begin;
    step(from, to, end - begin);
  });
}

struct AdamState : KernelState {
  double beta1 = 0, beta2 = 0, epsilon = 0, decay = 0;
};

std::shared_ptr<const KernelState> prepare_adamw(const NodeInfo& node) {
  auto state = std::make_shared<AdamState>();
  state->beta1 = node.attributes.real("beta1", 0.9);
  state->beta2 = node.attributes.real("beta2", 0.999);
  state->epsilon = node.attributes.real("epsilon", 1e-8);
  state->decay = node.attributes.real("decay", 0);
  return state;
}

/// w, first, second, gradient, then scale, rate, correction1, correction2.
template <Isa isa>
KernelStatus run_adamw(const KernelCall& call) {
  const auto& of = *static_cast<const AdamState*>(call.state);
  auto number = [&](size_t k) { return static_cast<double>(*call.inputs[k].as<float>()); };
  const double rate = number(5);
  AdamStep step{};
  step.scale = static_cast<float>(number(4));
  step.beta1 = static_cast<float>(of.beta1), step.rest1 = static_cast<float>(1 - of.beta1);
  step.beta2 = static_cast<float>(of.beta2), step.rest2 = static_cast<float>(1 - of.beta2);
  step.epsilon = static_cast<float>(of.epsilon), step.decay = static_cast<float>(rate * of.decay);
  step.rate = static_cast<float>(rate / number(6)), step.inverse2 = static_cast<float>(1 / number(7));
  each_share<4>(call, [&](auto& from, auto& to, int64_t n) { training_loops(isa).adamw(from, to, n, step); });
  return {};
}

struct SgdState : KernelState {
  float momentum = 0, decay = 0;
};

std::shared_ptr<const KernelState> prepare_sgd(const NodeInfo& node) {
  auto state = std::make_shared<SgdState>();
  state->momentum = static_cast<float>(node.attributes.real("momentum", 0));
  state->decay = static_cast<float>(node.attributes.real("decay", 0));
  return state;
}

/// w, velocity, gradient, then scale, rate.
template <Isa isa>
KernelStatus run_sgd(const KernelCall& call) {
  const auto& of = *static_cast<const SgdState*>(call.state);
  const SgdStep step{*call.inputs[3].as<float>(), of.momentum, *call.inputs[4].as<float>(), of.decay};
  each_share<3>(call, [&](auto& from, auto& to, int64_t n) { training_loops(isa).sgd(from, to, n, step); });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.AdamW",
              .dtypes = "f32",
              .accepts = accepts,
              .prepare = prepare_adamw,
              .run = run_adamw<isa>,
              .in_place = 0});
  add_kernel(table, isa,
             {.op = "plait.SGD",
              .dtypes = "f32",
              .accepts = accepts,
              .prepare = prepare_sgd,
              .run = run_sgd<isa>,
              .in_place = 0});
}

}  // namespace

void add_optimizers(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
