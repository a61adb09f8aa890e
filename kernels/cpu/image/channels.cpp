// Element by element ops of image models, f32: BatchNormalization, Clip, HardSigmoid, HardSwish, LeakyRelu.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/image/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// The two numbers of these ops.
struct PairState : KernelState {
  float a = 0, b = 0;
};

std::shared_ptr<const KernelState> prepare_hard_sigmoid(const NodeInfo& node) {
  auto state = std::make_shared<PairState>();
  state->a = static_cast<float>(node.attributes.real("alpha", 0.2));
  state->b = static_cast<float>(node.attributes.real("beta", 0.5));
  return state;
}
std::shared_ptr<const KernelState> prepare_hard_swish(const NodeInfo&) {
  auto state = std::make_shared<PairState>();
  state->a = 1.0f / 6;
  state->b = 0.5f;
  return state;
}
std::shared_ptr<const KernelState> prepare_leaky(const NodeInfo& node) {
  auto state = std::make_shared<PairState>();
  state->a = static_cast<float>(node.attributes.real("alpha", 0.01));
  return state;
}
std::shared_ptr<const KernelState> prepare_epsilon(const NodeInfo& node) {
  auto state = std::make_shared<PairState>();
  state->a = static_cast<float>(node.attributes.real("epsilon", 1e-5));
  return state;
}

template <class F>
void map(const KernelCall& call, F f) {
  const auto* x = call.inputs[0].as<float>();
  auto* y = call.outputs[0].as<float>();
  share_ranges(call.pool, call.outputs[0].elements(), 1024, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

const PairState& pair_of(const KernelCall& call) { return *static_cast<const PairState*>(call.state); }

/// NaN stays NaN.
float held(float x, float low, float high) {
  const float up = x < low ? low : x;
  return up > high ? high : up;
}

KernelStatus run_hard_sigmoid(const KernelCall& call) {
  const PairState p = pair_of(call);
  map(call, [p](float x) { return held(p.a * x + p.b, 0, 1); });
  return {};
}
KernelStatus run_hard_swish(const KernelCall& call) {
  const PairState p = pair_of(call);
  map(call, [p](float x) { return x * held(p.a * x + p.b, 0, 1); });
  return {};
}
KernelStatus run_leaky(const KernelCall& call) {
  const float slope = pair_of(call).a;
  map(call, [slope](float x) { return x >= 0 ? x : slope * x; });
  return {};
}

float bound_of(const KernelCall& call, size_t k, float fallback) {
  return k < call.inputs.size() && call.inputs[k].present() ? *call.inputs[k].as<float>() : fallback;
}

/// min(max(x, low), high), also where low is above high.
KernelStatus run_clip(const KernelCall& call) {
  for (int k : {1, 2})
    if (const auto at = static_cast<size_t>(k);
        at < call.inputs.size() && call.inputs[at].present() && call.inputs[at].elements() != 1)
      return {KernelCode::bad_value, k, call.inputs[at].elements()};
  const float low = bound_of(call, 1, -INFINITY), high = bound_of(call, 2, INFINITY);
  map(call, [low, high](float x) { return held(x, low, high); });
  return {};
}

/// x [b, c, ...], scale, bias, mean, variance [c] -> (x - mean) scale / sqrt(variance + epsilon) + bias.
KernelStatus run_batch_normalization(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t channels = x.shape.rank() > 1 ? x.shape[1] : 1, inner = x.shape.elements(2, x.shape.rank());
  for (int k = 1; k < 5; ++k)
    if (call.inputs[static_cast<size_t>(k)].elements() != channels)
      return {KernelCode::bad_value, k, call.inputs[static_cast<size_t>(k)].elements()};
  const float *scale = call.inputs[1].as<float>(), *bias = call.inputs[2].as<float>(),
              *mean = call.inputs[3].as<float>(), *variance = call.inputs[4].as<float>();
  const float epsilon = pair_of(call).a;
  if (x.elements() == 0) return {};
  share(call.pool, x.shape[0] * channels, x.elements(), [&](int64_t plane, int) {
    const int64_t c = plane % channels;
    const float factor = scale[c] / std::sqrt(variance[c] + epsilon), shift = mean[c], addend = bias[c];
    const float* from = x.as<float>() + plane * inner;
    float* to = y.as<float>() + plane * inner;
    for (int64_t i = 0; i < inner; ++i) to[i] = (from[i] - shift) * factor + addend;
  });
  return {};
}

bool all_f32(const NodeInfo& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const OperandInfo& one) { return one.dtype == DType::f32 || one.dtype == DType::none; });
}

bool accepts_running(const NodeInfo& node) {
  return all_f32(node) && node.attributes.integer("training_mode", 0) == 0 &&
         (node.outputs.size() < 2 || node.outputs[1].dtype == DType::none);
}

}  // namespace

void add_channels(KernelTable& table, Isa isa) {
  if (isa != Isa::avx2 && isa != Isa::avx512) return;
  auto add = [&](const char* op, bool (*accepts)(const NodeInfo&), KernelStatus (*run)(const KernelCall&),
                 std::shared_ptr<const KernelState> (*prepare)(const NodeInfo&) = nullptr) {
    add_kernel(table, isa,
               {.op = op, .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run, .in_place = 0});
  };
  add("BatchNormalization", accepts_running, run_batch_normalization, prepare_epsilon);
  add("Clip", all_f32, run_clip);
  add("HardSigmoid", all_f32, run_hard_sigmoid, prepare_hard_sigmoid);
  add("HardSwish", all_f32, run_hard_swish, prepare_hard_swish);
  add("LeakyRelu", all_f32, run_leaky, prepare_leaky);
}

}  // namespace plait::cpu
