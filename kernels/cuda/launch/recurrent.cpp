// plait.CausalConv and plait.LinearAttention.
#include "kernels/cuda/kernels/recurrent.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/kernels/indexing.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/nest.h"

namespace plait::cuda {
namespace {

struct RecurrentState : KernelState {
  bool silu = false, gated = false, delta = false;
  int64_t query_heads = 0, key_heads = 0;
  float scale = 0;  ///< 0: 1 / sqrt(d)
};

bool all_f32(const NodeInfo& node, std::initializer_list<size_t> which) {
  return std::all_of(which.begin(), which.end(), [&](size_t i) {
    const DType dtype = operand(node.inputs, i).dtype;
    return dtype == DType::f32 || dtype == DType::none;
  });
}

SegmentSlots runs_of(const KernelCall& call, size_t segments) {
  return {indices_of(call.inputs[segments]), indices_of(call.inputs[segments + 1]), report_of(call),
          call.inputs[segments].elements(),  call.inputs[segments + 1].shape[0],    call.outputs[0].shape[0],
          static_cast<int64_t>(segments)};
}

/// Slots that are not written keep their contents.
void keep_slots(const KernelCall& call) {
  const TensorView &from = call.inputs[0], &to = call.outputs[0];
  if (from.data == to.data) return;
  const Shape flat{to.elements()}, step{1};
  const CopyOperands o{from.data, to.data, make_nest(flat, step, step)};
  launch(call, "copy_4", map_geometry(o.nest.count), o);
}

// ---- convolutions: state [u, k - 1, c], x [b, t, c], w [k, c], segments [b, t], slots [n, 2], bias? [c] ----

bool accepts_conv(const NodeInfo& node) {
  const OperandInfo bias = operand(node.inputs, 5);
  return all_f32(node, {0, 1}) && has_element(node.inputs[2].dtype) && is_index(node.inputs[3].dtype) &&
         is_index(node.inputs[4].dtype) && (bias.dtype == DType::none || has_element(bias.dtype));
}

std::shared_ptr<const KernelState> prepare_conv(const NodeInfo& node) {
  auto state = std::make_shared<RecurrentState>();
  state->silu = node.attributes.string("activation", "none") != "none";
  return state;
}

KernelStatus run_conv(const KernelCall& call) {
  const TensorView &state = call.outputs[0], &x = call.inputs[1], &w = call.inputs[2], bias = operand(call.inputs, 5);
  const int64_t c = x.shape[2], taps = w.shape[0];
  if (w.shape[1] != c || taps < 1) return {KernelCode::bad_value, 2, w.shape[1]};
  if (state.shape[1] != taps - 1 || state.shape[2] != c) return {KernelCode::bad_value, 0, state.shape[1]};
  if (bias.present() && bias.elements() != c) return {KernelCode::bad_value, 5, bias.elements()};
  keep_slots(call);
  const CausalConvOperands o{data_of<float>(state),
                             data_of<const float>(x),
                             w.data,
                             bias.data,
                             data_of<float>(call.outputs[1]),
                             runs_of(call, 3),
                             element_of(w.dtype),
                             element_of(bias.dtype),
                             static_cast<int32_t>(c),
                             static_cast<int32_t>(taps),
                             static_cast<const RecurrentState&>(*call.state).silu};
  launch(call, "causal_conv", conv_geometry(o.runs.tokens, c), o);
  return launch(call, "causal_conv_state", conv_geometry(o.runs.count, c), o);
}

// ---- linear attention: state [u, g, d, e], q, k, v, segments, slots, decay?, beta? ----

constexpr int64_t most_keys = 256;  ///< of a state, whose columns are in shared memory

bool accepts_attention(const NodeInfo& node) {
  return all_f32(node, {0, 1, 2, 3, 6, 7}) && is_index(node.inputs[4].dtype) && is_index(node.inputs[5].dtype);
}

std::shared_ptr<const KernelState> prepare_attention(const NodeInfo& node) {
  auto state = std::make_shared<RecurrentState>();
  const std::string rule = node.attributes.string("update_rule", "gated_delta");
  state->gated = rule.starts_with("gated"), state->delta = rule.ends_with("delta");
  state->query_heads = node.attributes.integer("q_num_heads");
  state->key_heads = node.attributes.integer("kv_num_heads");
  state->scale = static_cast<float>(node.attributes.real("scale", 0));
  return state;
}

KernelStatus run_attention(const KernelCall& call) {
  const auto& own = static_cast<const RecurrentState&>(*call.state);
  const TensorView &state = call.outputs[0], &query = call.inputs[1], &key = call.inputs[2], &value = call.inputs[3],
                   &y = call.outputs[1];
  const TensorView decay = own.gated ? operand(call.inputs, 6) : TensorView{},
                   beta = own.delta ? operand(call.inputs, 7) : TensorView{};
  const int64_t tokens = query.shape[0] * query.shape[1], h = own.query_heads, g = own.key_heads, n = std::max(h, g);
  const int64_t d = query.shape[2] / h, keys = d ? key.shape[2] / d : 0, e = value.shape[2] / g;
  if (n % h || n % g || d < 1 || d > most_keys || keys < 1 || g % keys || key.elements() != tokens * keys * d)
    return {KernelCode::bad_value, 2, key.elements()};
  if (value.elements() != tokens * g * e) return {KernelCode::bad_value, 3, value.elements()};
  if (state.shape[1] != g || state.shape[2] != d || state.shape[3] != e)
    return {KernelCode::bad_value, 0, state.elements()};
  const bool of_keys = decay.elements() == tokens * g * d, of_heads = beta.elements() == tokens * g;
  if (own.gated && !of_keys && decay.elements() != tokens * g) return {KernelCode::bad_value, 6, decay.elements()};
  if (own.delta && !of_heads && beta.elements() != tokens) return {KernelCode::bad_value, 7, beta.elements()};
  keep_slots(call);
  const FillOperands zeros{y.data, y.elements(), 0};  // of tokens without a segment
  launch(call, "fill_4", map_geometry(zeros.count), zeros);
  LinearAttentionOperands o{};
  o.state = data_of<float>(state), o.query = data_of<const float>(query), o.key = data_of<const float>(key);
  o.value = data_of<const float>(value), o.decay = data_of<const float>(decay), o.beta = data_of<const float>(beta);
  o.y = data_of<float>(y), o.runs = runs_of(call, 4);
  o.h = static_cast<int32_t>(h), o.g = static_cast<int32_t>(g), o.n = static_cast<int32_t>(n);
  o.d = static_cast<int32_t>(d), o.keys = static_cast<int32_t>(keys), o.e = static_cast<int32_t>(e);
  o.decay_of_keys = of_keys, o.beta_of_heads = of_heads;
  o.scale = own.scale != 0 ? own.scale : 1 / std::sqrt(static_cast<float>(d));
  return launch(call, "linear_attention", linear_attention_geometry(o), o);
}

}  // namespace

void add_recurrences(KernelTable& table) {
  add_kernel(table, {.op = "plait.CausalConv",
                     .dtypes = "f32 x f32|bf16|f16",
                     .accepts = accepts_conv,
                     .prepare = prepare_conv,
                     .run = run_conv,
                     .in_place = 0});
  add_kernel(table, {.op = "plait.LinearAttention",
                     .dtypes = "f32",
                     .accepts = accepts_attention,
                     .prepare = prepare_attention,
                     .run = run_attention,
                     .in_place = 0});
}

}  // namespace plait::cuda
