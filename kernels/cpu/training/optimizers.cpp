// In-place optimizer steps: plait.AdamW, plait.SGD and those of Adafactor, in one pass over arrays that are far
// larger than caches. The loops are in training_loops.cpp.
#include <algorithm>

#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"
#include "kernels/cpu/training/training_loops.h"

namespace plait::cpu {
namespace {

constexpr int64_t grain = 1024;  ///< elements: shares begin at multiples of it

bool accepts(const NodeInfo& node) {
  auto is_f32 = [](const OperandInfo& operand) { return operand.dtype == DType::f32; };
  return std::all_of(node.inputs.begin(), node.inputs.end(), is_f32) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), is_f32);
}

/// Calls step(from, to, n) for ranges of the first N inputs and of the outputs.
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

struct FactoredState : KernelState {
  float floor = 0;
};

std::shared_ptr<const KernelState> prepare_factored(const NodeInfo& node) {
  auto state = std::make_shared<FactoredState>();
  state->floor = static_cast<float>(node.attributes.real("floor", 0));
  return state;
}

/// The rows of a gradient, with their divisors.
struct Factored {
  /// `first`: the operand with the means of rows; those of columns and the gradient's scale follow.
  Factored(const KernelCall& call, size_t gradient, size_t first)
      : means(call.inputs[first].as<float>()), columns(call.inputs[first + 1].as<float>()) {
    const Shape& shape = call.inputs[gradient].shape;
    k = shape[shape.rank() - 1];
    n = shape.rank() > 1 ? shape[shape.rank() - 2] : 1;
    rows = shape.elements(0, shape.rank() - 1);
    of.scale = *call.inputs[first + 2].as<float>();
    of.floor = static_cast<const FactoredState*>(call.state)->floor;
  }

  FactoredRow row(int64_t i) const {
    FactoredRow out = of;
    out.row = means[i];
    return out;
  }
  const float* column(int64_t i) const { return columns + i / n * k; }

  const float *means, *columns;
  int64_t n, k, rows;
  FactoredRow of{};
};

constexpr int64_t most_parts =
    64;  ///< of the sum, for several threads; they depend only on the sizes

int64_t squares_scratch(const KernelState*, std::span<const TensorView>, std::span<const TensorView>, int) {
  return most_parts * static_cast<int64_t>(sizeof(double));
}

/// gradient, row, column, scale.
template <Isa isa>
KernelStatus run_factored_squares(const KernelCall& call) {
  const Factored all(call, 0, 1);
  const float* gradient = call.inputs[0].as<float>();
  auto* sums = reinterpret_cast<double*>(call.scratch.data());
  const int64_t parts = std::min(all.rows, most_parts);
  share(call.pool, parts, 4 * all.rows * all.k, [&](int64_t part, int) {
    sums[part] = 0;
    for (int64_t i = all.rows * part / parts; i < all.rows * (part + 1) / parts; ++i)
      sums[part] += training_loops(isa).factored_squares(gradient + i * all.k, all.column(i), all.k, all.row(i));
  });
  double sum = 0;
  for (int64_t part = 0; part < parts; ++part) sum += sums[part];
  *call.outputs[0].as<float>() = static_cast<float>(sum);
  return {};
}

/// w, gradient, row, column, then scale, shrink, step.
template <Isa isa>
KernelStatus run_factored_step(const KernelCall& call) {
  Factored all(call, 1, 2);
  all.of.shrink = *call.inputs[5].as<float>();
  all.of.step = *call.inputs[6].as<float>();
  share_ranges(call.pool, all.rows, 1, 4 * all.k, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from[2] = {call.inputs[0].as<float>() + i * all.k, call.inputs[1].as<float>() + i * all.k};
      float* to[2] = {call.outputs[0].as<float>() + i * all.k, call.outputs[1].as<float>() + i * all.k};
      training_loops(isa).factored_step(from, all.column(i), to, all.k, all.row(i));
    }
  });
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
  add_kernel(table, isa,
             {.op = "plait.FactoredSquares",
              .dtypes = "f32",
              .accepts = accepts,
              .prepare = prepare_factored,
              .scratch_bytes = squares_scratch,
              .run = run_factored_squares<isa>});
  add_kernel(table, isa,
             {.op = "plait.FactoredStep",
              .dtypes = "f32",
              .accepts = accepts,
              .prepare = prepare_factored,
              .run = run_factored_step<isa>,
              .in_place = 0});
}

}  // namespace

void add_optimizers(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
