// plait.PagedAttention.
#include "kernels/cuda/kernels/attention.h"

#include <algorithm>

#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

struct AttentionState : KernelState {
  float scale = 1, softcap = 0;
  int32_t window = 0;
};

bool accepts(const NodeInfo& node) {
  const auto optional_row = [&](size_t i) {
    const DType dtype = operand(node.inputs, i).dtype;
    return dtype == DType::none || has_element(dtype);
  };
  return node.inputs[0].dtype == DType::f32 && has_element(node.inputs[1].dtype) &&
         node.inputs[2].dtype == node.inputs[1].dtype && is_index(node.inputs[3].dtype) &&
         is_index(node.inputs[4].dtype) && is_index(node.inputs[5].dtype) && optional_row(6) && optional_row(7) &&
         node.outputs[0].dtype == DType::f32;
}

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<AttentionState>();
  state->scale = static_cast<float>(node.attributes.real("scale", 1));
  state->softcap = static_cast<float>(node.attributes.real("softcap", 0));
  state->window = static_cast<int32_t>(node.attributes.integer("window", 0));
  return state;
}

int64_t splits_of_call(std::span<const TensorView> inputs) {
  return splits_of(inputs[5].shape[1], inputs[1].shape[3]);
}
int64_t tokens_of(std::span<const TensorView> inputs) { return inputs[0].shape[0] * inputs[0].shape[1]; }

/// More tokens take none, and are given as much as few: what is planned for the most tokens has to be enough for fewer.
int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  const int64_t tokens = std::min(tokens_of(inputs), few_tokens);
  return tokens * inputs[0].shape[2] * splits_of_call(inputs) * (inputs[2].shape[3] + 2) * 4;
}

KernelStatus run(const KernelCall& call) {
  const TensorView &q = call.inputs[0], &keys = call.inputs[1], &values = call.inputs[2], &pages = call.inputs[5];
  const TensorView sinks = operand(call.inputs, 6), slopes = operand(call.inputs, 7);
  const auto& state = static_cast<const AttentionState&>(*call.state);
  const int64_t tokens = tokens_of(call.inputs), g = keys.shape[1], heads = q.shape[2], d = keys.shape[2],
                e = values.shape[3];
  if (!call.outputs[0].elements()) return {};
  const int64_t splits = splits_of_call(call.inputs);
  const bool few = tokens <= few_tokens;
  const AttentionOperands o{data_of<const float>(q),
                            keys.data,
                            values.data,
                            data_of<float>(call.outputs[0]),
                            few ? reinterpret_cast<float*>(call.scratch.data()) : nullptr,
                            indices_of(call.inputs[3]),
                            indices_of(call.inputs[4]),
                            indices_of(pages),
                            sinks.data,
                            slopes.data,
                            element_of(sinks.dtype),
                            element_of(slopes.dtype),
                            report_of(call),
                            keys.shape[0],
                            static_cast<int32_t>(g),
                            static_cast<int32_t>(heads / g),
                            static_cast<int32_t>(d),
                            static_cast<int32_t>(e),
                            static_cast<int32_t>(keys.shape[3]),
                            static_cast<int32_t>(pages.shape[0]),
                            static_cast<int32_t>(pages.shape[1]),
                            state.window,
                            state.scale,
                            state.softcap};
  launch(call, by_element(keys.dtype, "attend_f32", "attend_bf16", "attend_f16"),
         attention_geometry(tokens, g, heads / g, splits, d, e), o);
  if (few) launch(call, "join_attention", join_geometry(tokens, heads), o, static_cast<int32_t>(splits));
  return {};
}

}  // namespace

void add_attention(KernelTable& table) {
  add_kernel(table, {.op = "plait.PagedAttention",
                     .dtypes = "f32 x f32|bf16|f16",
                     .accepts = accepts,
                     .prepare = prepare,
                     .scratch_bytes = scratch_bytes,
                     .run = run});
}

}  // namespace plait::cuda
