// plait.Linear, plait.Linears and plait.GatedLinear: x as columns, then a launch a weight.
#include "kernels/cuda/kernels/linear.h"

#include <algorithm>

#include "core/base/activation.h"
#include "core/base/linear_operands.h"
#include "kernels/cuda/launch/gate.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/linear_pack.h"

namespace plait::cuda {
namespace {

/// Operands of a weight by position.
struct WeightSlots {
  size_t w, scales, zeros;
};

struct LinearState : KernelState {
  std::vector<WeightSlots> weights;  ///< GatedLinear: gate, up
  bool packed = false, rounded = false, gated = false;
  Gate gate = Gate::none;
  int zero = 0;
};

constexpr size_t absent = SIZE_MAX;

std::vector<WeightSlots> weights_of(const NodeInfo& node) {
  if (node.op == "plait.Linear") return {{linear_w, linear_scales, linear_zeros}};
  if (node.op == "plait.GatedLinear")
    return {{gated_gate, gated_gate_scales, gated_gate_zeros}, {gated_up, gated_up_scales, gated_up_zeros}};
  const auto parts = static_cast<size_t>(std::clamp<int64_t>(node.attributes.integer("parts", 1), 1, 3));
  std::vector<WeightSlots> out;
  for (size_t at = 1; at < node.inputs.size(); at += parts)
    out.push_back({at, parts > 1 ? at + 1 : absent, parts > 2 ? at + 2 : absent});
  return out;
}

/// Whether the weight, and what belongs to it, are constants with a layout for tensor cores.
bool is_packed(const NodeInfo& node, const WeightSlots& slots) {
  const OperandInfo w = operand(node.inputs, slots.w), scales = operand(node.inputs, slots.scales),
                    zeros = operand(node.inputs, slots.zeros);
  if (!w.constant || !weight_layout(w.dtype)) return false;
  if (w.rank == 2) return has_element(w.dtype);
  const bool good_zeros =
      zeros.dtype == DType::none || zeros.dtype == DType::u8 || zeros.dtype == DType::i8 || has_element(zeros.dtype);
  return w.rank == 3 && scales.constant && has_element(scales.dtype) && good_zeros &&
         (zeros.constant || zeros.dtype == DType::none);
}

bool accepts(const NodeInfo& node) {
  const std::vector<WeightSlots> weights = weights_of(node);
  const OperandInfo first = operand(node.inputs, weights[0].w);
  bool good = node.inputs[0].dtype == DType::f32 && std::abs(node.attributes.integer("zero", 0)) <= 128;
  for (const WeightSlots& slots : weights) {
    const OperandInfo w = operand(node.inputs, slots.w);
    const bool plain = !first.constant || first.dtype == DType::f32;
    good = good && w.dtype == first.dtype && w.rank == first.rank && w.constant == first.constant;
    good = good && (plain ? w.rank == 2 && has_element(w.dtype) : is_packed(node, slots));
  }
  for (const OperandInfo& output : node.outputs)
    good = good && (output.dtype == DType::f32 || output.dtype == DType::none);
  if (node.op != "plait.Linear") return good;
  const OperandInfo bias = operand(node.inputs, linear_bias);
  return good && (bias.dtype == DType::none || has_element(bias.dtype));
}

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<LinearState>();
  state->weights = weights_of(node);
  state->packed = is_packed(node, state->weights[0]);
  const DType dtype = node.inputs[state->weights[0].w].dtype;
  state->rounded = dtype == DType::bf16 && node.attributes.integer("round_x", 0) != 0;
  state->gated = node.op == "plait.GatedLinear";
  if (state->gated) state->gate = gate_of(activation_of(node.attributes, node.op));
  state->zero = static_cast<int>(node.attributes.integer("zero", 0)) + code_shift(dtype);
  return state;
}

const PackedLayout* pack(const NodeInfo& node, size_t i) {
  for (const WeightSlots& slots : weights_of(node)) {
    if (!is_packed(node, slots)) continue;
    const OperandInfo& w = node.inputs[slots.w];
    if (i == slots.w) return weight_layout(w.dtype);
    if (w.rank == 3 && i == slots.scales) return scale_layout();
    if (w.rank == 3 && i == slots.zeros && node.inputs[i].dtype != DType::none) return zero_layout(w.dtype);
  }
  return nullptr;
}

/// How x has to be arranged for a weight.
struct Arrangement {
  int64_t units = 0, block = 0;
  int32_t blocks = 1, shift = 0;
  bool operator==(const Arrangement&) const = default;

  Arrangement() = default;
  Arrangement(const TensorView& w, int64_t k) : units(units_of(k)), block(k) {
    if (w.shape.rank() == 3) {
      block = w.shape[2], shift = block_shift_of(block), blocks = static_cast<int32_t>(w.shape[1]);
      units = int64_t{blocks} << shift;
    } else {
      while (int64_t{1} << shift < units) ++shift;
    }
  }
};

/// Columns, their sums, the gate's outputs.
struct LinearScratch {
  int64_t columns = 0, sums = 0, gated = 0;

  LinearScratch(const LinearState& state, std::span<const TensorView> inputs) {
    const int64_t k = inputs[0].shape.back(1), tokens = k ? inputs[0].elements() / k : 0;
    if (state.gated) gated = round_up(tokens * inputs[gated_gate].shape[0] * 4);
    if (!state.packed || !tokens) return;
    const bool blocks = inputs[state.weights[0].w].shape.rank() == 3;
    for (const WeightSlots& slots : state.weights) {
      const int64_t units = tiles_of(tokens) * Arrangement(inputs[slots.w], k).units;
      columns = std::max(columns, units * column_bytes * (blocks || state.rounded ? 1 : 2));
      if (blocks) sums = std::max(sums, round_up(units * tile_tokens * 4));
    }
  }
  int64_t bytes() const { return columns + sums + gated; }

 private:
  static int64_t round_up(int64_t bytes) { return ceil_div(bytes, 64) * 64; }
};

int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int) {
  return LinearScratch(static_cast<const LinearState&>(*state), inputs).bytes();
}

/// The kernel for up to 8 tokens, and for more.
struct Names {
  const char *few, *many;
};
Names kernel_of(DType dtype, bool rounded, bool zeros) {
  switch (dtype) {
    case DType::bf16:
      return rounded ? Names{"linear_bf16_rounded", "linear_bf16_rounded_many"}
                     : Names{"linear_bf16", "linear_bf16_many"};
    case DType::f16: return {"linear_f16", "linear_f16_many"};
    case DType::u8:
    case DType::i8:
      return zeros ? Names{"linear_int8_zeros", "linear_int8_zeros_many"} : Names{"linear_int8", "linear_int8_many"};
    default:
      return zeros ? Names{"linear_int4_zeros", "linear_int4_zeros_many"} : Names{"linear_int4", "linear_int4_many"};
  }
}

/// The kernel that arranges x for a weight.
const char* columns_of(const TensorView& w, bool rounded) {
  if (w.shape.rank() == 3) return "columns_f16_rounded";
  return w.dtype == DType::f16 ? "columns_f16" : rounded ? "columns_bf16_rounded" : "columns_bf16";
}

/// The operand that does not fit the others, for quantised weights; 0 if there is none.
int32_t misfit(const KernelCall& call, const WeightSlots& slots, int64_t k) {
  const TensorView& w = call.inputs[slots.w];
  if (w.shape.rank() == 2) return w.shape[1] == k ? 0 : static_cast<int32_t>(slots.w);
  if (k > w.shape[1] * w.shape[2]) return static_cast<int32_t>(slots.w);
  for (const size_t i : {slots.scales, slots.zeros}) {
    const TensorView factors = operand(call.inputs, i);
    if (factors.present() &&
        !(factors.shape.rank() == 2 && factors.shape[0] == w.shape[0] && factors.shape[1] == w.shape[1]))
      return static_cast<int32_t>(i);
  }
  return 0;
}

KernelStatus run(const KernelCall& call) {
  const auto& state = static_cast<const LinearState&>(*call.state);
  const TensorView& x = call.inputs[0];
  const int64_t k = x.shape.back(1), tokens = k ? x.elements() / k : 0;
  if (!tokens) return {};
  const LinearScratch scratch(state, call.inputs);
  std::byte* const columns = call.scratch.data();
  LinearOperands o{};
  o.columns = columns, o.column_sums = scratch.sums ? reinterpret_cast<float*>(columns + scratch.columns) : nullptr,
  o.x = data_of<const float>(x);
  o.k = static_cast<int32_t>(k), o.tokens = static_cast<int32_t>(tokens), o.zero = static_cast<float>(state.zero);
  auto* const gated = reinterpret_cast<float*>(columns + scratch.columns + scratch.sums);
  Arrangement arranged;
  for (size_t i = 0; i < state.weights.size(); ++i) {
    const WeightSlots& slots = state.weights[i];
    const TensorView &w = call.inputs[slots.w], scales = operand(call.inputs, slots.scales),
                     zeros = operand(call.inputs, slots.zeros);
    if (const int32_t slot = misfit(call, slots, k))
      return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].shape[1]};
    if (!state.gated && !call.outputs[i].present()) continue;
    o.weights = w.data, o.scales = scales.data, o.zeros = zeros.data;
    o.n = static_cast<int32_t>(w.shape[0]);
    o.y = data_of<float>(call.outputs[state.gated ? 0 : i]);
    if (state.gated && i == 0) o.y = gated;
    if (state.gated && i == 1) o.gated = gated, o.gate = state.gate;
    if (const TensorView bias = operand(call.inputs, linear_bias); bias.present() && state.weights.size() == 1)
      o.bias = bias.data, o.bias_element = element_of(bias.dtype);
    if (i + 1 == state.weights.size() && (state.gated || i == 0))
      o.give = ranks_of(call);  // what makes the only output
    if (!state.packed) {
      launch(call, by_element(w.dtype, "linear_plain_f32", "linear_plain_bf16", "linear_plain_f16"),
             linear_plain_geometry(o.n, tokens), o);
      continue;
    }
    if (const Arrangement next(w, k); arranged != next) {
      arranged = next;
      o.units = static_cast<int32_t>(next.units), o.blocks = next.blocks, o.block_shift = next.shift;
      const ColumnOperands of_columns{o.x,
                                      columns,
                                      const_cast<float*>(o.column_sums),
                                      o.k,
                                      o.tokens,
                                      static_cast<int32_t>(tiles_of(tokens)),
                                      o.units,
                                      static_cast<int32_t>(next.block),
                                      next.shift};
      launch(call, columns_of(w, state.rounded), column_geometry(next.units, tokens), of_columns);
    }
    const Names names = kernel_of(w.dtype, state.rounded, zeros.present());
    launch(call, has_many(tokens) ? names.many : names.few, linear_geometry(o.n, tokens, w.shape.rank() == 3), o);
  }
  return {};
}

}  // namespace

void add_linear(KernelTable& table) {
  for (const char* op : {"plait.Linear", "plait.Linears", "plait.GatedLinear"})
    add_kernel(table, {.op = op,
                       .dtypes = "f32 x f32|bf16|f16|2 to 8 bits",
                       .accepts = accepts,
                       .prepare = prepare,
                       .scratch_bytes = scratch_bytes,
                       .run = run,
                       .pack = pack});
}

}  // namespace plait::cuda
