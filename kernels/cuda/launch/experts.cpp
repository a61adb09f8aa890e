// plait.Experts.
#include "kernels/cuda/kernels/experts.h"

#include <algorithm>

#include "core/base/activation.h"
#include "kernels/cuda/launch/gate.h"
#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

struct ExpertsState : KernelState {
  ShardedAxis shard;
  Gate activation = Gate::identity;
  float alpha = 1, beta = 0, limit = 0;
  int64_t zero = 0, down_zero = 0;
};

/// Operands of a stack by position.
struct StackSlots {
  size_t weights, bias, scales, zeros;
};
constexpr StackSlots gate_slots{3, 6, 9, 10}, up_slots{4, 7, 11, 12}, down_slots{5, 8, 13, 14};

bool is_code(DType dtype) {
  constexpr DType codes[] = {DType::u8, DType::i8, DType::u4, DType::i4, DType::u2, DType::i2};
  return std::find(std::begin(codes), std::end(codes), dtype) != std::end(codes);
}
bool is_signed_code(DType dtype) { return dtype == DType::i8 || dtype == DType::i4 || dtype == DType::i2; }

bool accepts_stack(const NodeInfo& node, const StackSlots& slots) {
  const OperandInfo w = operand(node.inputs, slots.weights), bias = operand(node.inputs, slots.bias),
                    scales = operand(node.inputs, slots.scales), zeros = operand(node.inputs, slots.zeros);
  if (bias.dtype != DType::none && !has_element(bias.dtype)) return false;
  if (w.rank == 3) return has_element(w.dtype);
  return w.rank == 4 && is_code(w.dtype) && has_element(scales.dtype) &&
         (zeros.dtype == DType::none || zeros.dtype == DType::u8 || zeros.dtype == DType::i8 ||
          has_element(zeros.dtype));
}

bool accepts_experts(const NodeInfo& node) {
  const DType gate = node.inputs[3].dtype, up = node.inputs[4].dtype;
  return node.inputs[0].dtype == DType::f32 && is_index(node.inputs[1].dtype) && node.inputs[2].dtype == DType::f32 &&
         node.outputs[0].dtype == DType::f32 && accepts_stack(node, gate_slots) &&
         (up == DType::none || (up == gate && accepts_stack(node, up_slots))) && accepts_stack(node, down_slots);
}

std::shared_ptr<const KernelState> prepare_experts(const NodeInfo& node) {
  auto state = std::make_shared<ExpertsState>();
  state->shard = ShardedAxis::of(node.attributes);
  state->activation = gate_of(activation_of(node.attributes, node.op));
  state->alpha = static_cast<float>(node.attributes.real("alpha", 1));
  state->beta = static_cast<float>(node.attributes.real("beta", 0));
  state->limit = static_cast<float>(node.attributes.real("limit", 0));
  state->zero = node.attributes.integer("zero", 0), state->down_zero = node.attributes.integer("down_zero", 0);
  return state;
}

/// `x`: what its rows are multiplied with.
ExpertStack stack_of(const KernelCall& call, const StackSlots& slots, int64_t zero, int64_t k, const void* x) {
  const TensorView w = operand(call.inputs, slots.weights), bias = operand(call.inputs, slots.bias),
                   scales = operand(call.inputs, slots.scales), zeros = operand(call.inputs, slots.zeros);
  if (!w.present()) return {};
  ExpertStack out{};
  out.weights = w.data, out.bias = bias.data, out.scales = scales.data, out.zeros = zeros.data;
  out.zero = static_cast<float>(zero);
  out.bias_element = element_of(bias.dtype), out.scale_element = element_of(scales.dtype);
  out.zero_type = zeros.dtype == DType::u8   ? zero_u8
                  : zeros.dtype == DType::i8 ? zero_i8
                                             : static_cast<int32_t>(element_of(zeros.dtype));
  out.n = static_cast<int32_t>(w.shape[1]), out.k = static_cast<int32_t>(k);
  out.block = static_cast<int32_t>(w.shape.back(1));
  out.row = w.shape.rank() == 4 ? static_cast<int32_t>(w.shape[2]) * out.block : out.block;
  out.sign = is_signed_code(w.dtype) ? 1 << (dtype_bits(w.dtype) - 1) : 0;
  const bool whole = k % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  out.eights = out.block % 8 ? no_eights : whole ? whole_eights : padded_eights;
  return out;
}

/// Whether the stack has experts of [n, k].
bool fits(const KernelCall& call, const StackSlots& slots, const ExpertStack& stack, int64_t experts, int64_t n,
          int64_t k) {
  const TensorView &w = call.inputs[slots.weights], bias = operand(call.inputs, slots.bias);
  const int64_t blocks = experts * n * (w.shape.rank() == 4 ? w.shape[2] : 0);
  const TensorView scales = operand(call.inputs, slots.scales), zeros = operand(call.inputs, slots.zeros);
  return w.shape[0] == experts && stack.n == n && (w.shape.rank() == 4 ? k <= stack.row : k == stack.row) &&
         (!bias.present() || bias.elements() == experts * n) && (!scales.present() || scales.elements() == blocks) &&
         (!zeros.present() || zeros.elements() == blocks) && stack.row * dtype_bits(w.dtype) % 8 == 0;
}

/// Whether the choices are sorted. Those of one token are of different experts, and need no order.
bool sorts(int64_t tokens, int64_t experts) { return tokens > 1 && experts <= most_sorted_experts; }

/// Scratch of a call: what `operands` point to, or only how much it is.
int64_t place_scratch(int64_t choices, int64_t f, int64_t o, bool sorted, int64_t experts, std::byte* memory,
                      ExpertsOperands* operands) {
  int64_t at = 0;
  const auto take = [&](auto*& to, int64_t count) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(memory + at);
    at += ceil_div(count * static_cast<int64_t>(sizeof *to), 16) * 16;
  };
  ExpertsOperands sizes{};
  ExpertsOperands& out = operands ? *operands : sizes;
  take(out.hidden, choices * f);
  if (!sorted) return at;
  take(out.parts, choices * o);
  take(out.tiles, most_expert_tiles(choices, experts));
  take(out.order, choices);
  take(out.tile_count, 1);
  return at;
}

int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  const int64_t choices = inputs[1].elements(), k = inputs[1].shape.back(1), experts = inputs[3].shape[0];
  return place_scratch(choices, inputs[3].shape[1], inputs[5].shape[1], sorts(k ? choices / k : 0, experts), experts,
                       nullptr, nullptr);
}

/// The kernel of that beginning for the stack's type.
const char* by_stack(DType dtype, const std::array<const char*, 6>& names) {
  if (has_element(dtype)) return by_element(dtype, names[0], names[1], names[2]);
  const int bits = dtype_bits(dtype);
  return names[bits == 8 ? 3 : bits == 4 ? 4 : 5];
}

#define PLAIT_BY_STACK(kernel) \
  { kernel "_f32", kernel "_bf16", kernel "_f16", kernel "_int8", kernel "_int4", kernel "_int2" }

KernelStatus run_experts(const KernelCall& call) {
  const auto& state = static_cast<const ExpertsState&>(*call.state);
  const TensorView &x = call.inputs[0], &numbers = call.inputs[1], &gate = call.inputs[3], &down = call.inputs[5];
  const int64_t h = x.shape.back(1), k = numbers.shape.back(1), f = gate.shape[1], experts = gate.shape[0];
  ExpertsOperands o{};
  o.x = data_of<const float>(x), o.shares = data_of<const float>(call.inputs[2]);
  o.y = data_of<float>(call.outputs[0]);
  o.numbers = indices_of(numbers), o.report = report_of(call);
  o.gate = stack_of(call, gate_slots, state.zero, h, x.data), o.up = stack_of(call, up_slots, state.zero, h, x.data);
  o.down = stack_of(call, down_slots, state.down_zero, f, call.scratch.data());
  o.tokens = h ? x.elements() / h : 0, o.choices = k;
  o.experts = experts, o.offset = state.shard.offset, o.whole = state.shard.whole;
  o.alpha = state.alpha, o.beta = state.beta, o.limit = state.limit, o.activation = state.activation;
  if (!fits(call, gate_slots, o.gate, experts, f, h)) return {KernelCode::bad_value, 3, experts};
  if (o.up.weights && !fits(call, up_slots, o.up, experts, f, h)) return {KernelCode::bad_value, 4, experts};
  if (!fits(call, down_slots, o.down, experts, down.shape[1], f)) return {KernelCode::bad_value, 5, experts};
  if (numbers.elements() != o.tokens * k || call.inputs[2].elements() != numbers.elements())
    return {KernelCode::bad_value, 1, numbers.elements()};
  o.give = ranks_of(call);
  const bool sorted = sorts(o.tokens, experts);
  place_scratch(o.tokens * k, f, o.down.n, sorted, experts, call.scratch.data(), &o);
  if (!sorted) {
    launch(call, by_stack(gate.dtype, PLAIT_BY_STACK("experts_hidden")), experts_geometry(f, o.tokens * k), o);
    return launch(call, by_stack(down.dtype, PLAIT_BY_STACK("experts_down")), experts_geometry(o.down.n, o.tokens),
                  o);
  }
  const int64_t tiles = most_expert_tiles(o.tokens * k, experts);
  launch(call, "experts_sort", experts_sort_geometry(experts), o);
  launch(call, by_stack(gate.dtype, PLAIT_BY_STACK("experts_hidden_sorted")), experts_geometry(f, tiles), o);
  launch(call, by_stack(down.dtype, PLAIT_BY_STACK("experts_down_sorted")), experts_geometry(o.down.n, tiles), o);
  return launch(call, "experts_join", experts_join_geometry(o.down.n, o.tokens), o);
}

}  // namespace

void add_experts(KernelTable& table) {
  add_kernel(table, {.op = "plait.Experts",
                     .dtypes = "f32 x f32|bf16|f16|2 to 8 bits",
                     .accepts = accepts_experts,
                     .prepare = prepare_experts,
                     .scratch_bytes = scratch_bytes,
                     .run = run_experts});
}

}  // namespace plait::cuda
