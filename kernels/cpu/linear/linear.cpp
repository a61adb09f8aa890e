// plait.Linear, plait.Linears and plait.GatedLinear: distribution over threads. The arithmetic is in linear_tile.cpp.
#include "core/base/activation.h"
#include "core/base/error.h"
#include "core/base/linear_operands.h"
#include "core/base/text.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// One weight and its outputs; `gate` is the second weight of GatedLinear.
struct Part {
  Weight weight{};
  const TensorView* y = nullptr;
  const TensorView* bias = nullptr;
  Weight gate{};
  int64_t first_item = 0, column_items = 0;
  LinearPlan plan{};

  bool gated() const { return gate.present(); }
};

constexpr size_t most_weights = 8;  ///< of plait.Linears

/// Attributes of quantised weights.
struct LinearState : KernelState {
  float zero = 0;
  size_t parts = 1;  ///< operands per weight of plait.Linears
};

/// The weight with operands `w`, `scales` and `zeros`, as far as present.
Weight operand_weight(const LinearState& state, std::span<const TensorView> inputs, size_t w, size_t scales,
                      size_t zeros) {
  auto operand = [&](size_t k) { return k < inputs.size() ? inputs[k] : TensorView{}; };
  return weight_of(inputs[w], operand(scales), operand(zeros), state.zero);
}

struct GateState : LinearState {
  Unary activation = Unary::identity;
};

int64_t rows_of(const TensorView& x) { return x.shape.elements(0, x.shape.rank() - 1); }

/// Scratch of a call: x, arranged for quantised weights, and packed, for all workers; then per worker a block's
/// scratch, the gate's outputs (or the bias), and unpacked rows.
struct Scratch {
  int64_t arranged = 0, packed = 0, block = 0, side = 0, rows = 0;

  Scratch(Isa isa, const TensorView& x, std::span<const Part> parts, int threads) {
    const int64_t m = rows_of(x), k = parts[0].weight.inner(x.shape.back(1));
    const bool packs = packs_x(isa, m);
    if (packs) packed = align(packed_tiles(isa).bytes(m, k));
    for (const Part& part : parts) {
      const int64_t n = part.weight.n, columns = item_columns(isa, m, n, k, threads);
      if (packs) block = std::max(block, align(4 * packed_tiles(isa).scratch(m, columns, k)));
      side = std::max(side,
                      align(4 * columns * std::min(make_plan(isa, m, n, k, threads).rows, std::max<int64_t>(m, 1))));
      if (!part.weight.is_blocked) continue;
      arranged = align(4 * m * k);
      rows = std::max(rows, align(4 * blocked_scratch(part.weight.blocked)));
    }
  }
  int64_t bytes(int threads) const { return arranged + packed + (block + side + rows) * threads; }
};

/// The item's rows [i, i + rows) and columns [j, j + columns) of one part.
template <Isa isa>
void run_item(const Worker& worker, const Part& part, int64_t i, int64_t rows, int64_t j, int64_t columns,
              Unary activation) {
  const int64_t n = part.weight.n, row_bytes = worker.k * dtype_bits(part.weight.dtype) / 8;
  // Items are taken round-robin: this thread's next one is likely `threads` further on.
  const int64_t later = j + worker.threads * part.plan.columns;
  const uint8_t* next = later + columns <= n ? part.weight.data + later * row_bytes : nullptr;
  float *y = part.y->as<float>() + i * n + j, *side = worker.side;
  run_block<isa>(worker, part.weight, i, rows, j, columns, y, n,
                 part.gated() ? part.gate.data + j * row_bytes : next);
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  if (part.gated()) {
    run_block<isa>(worker, part.gate, i, rows, j, columns, side, columns, next);
    for (int64_t row = 0; row < rows; ++row)
      loops.gate[static_cast<int>(activation)](side + row * columns, y + row * n, columns);
  }
  if (part.bias) add_bias(loops, part.bias->as<uint8_t>(), part.bias->dtype, j, rows, columns, y, n, side);
}

/// The operand that does not fit the others, for quantised weights; 0 if none.
int32_t misfit(std::span<const TensorView> inputs, const Weight& like, int64_t k) {
  if (!like.is_blocked) return 0;
  const BlockedWeight& w = like.blocked;
  if (k > w.blocks * w.length) return 1;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Shape& shape = inputs[i].shape;
    const bool codes = shape.rank() == 3, factors = shape.rank() == 2;
    if ((codes || factors) && (shape[1] != w.blocks || (codes && shape[2] != w.length)))
      return static_cast<int32_t>(i);
  }
  return 0;
}

template <Isa isa>
KernelStatus run_parts(const KernelCall& call, std::span<Part> parts, Unary activation) {
  const TensorView& x = call.inputs[0];
  const int64_t m = rows_of(x), k = parts[0].weight.inner(x.shape.back(1));
  if (m == 0) return {};
  if (int32_t slot = misfit(call.inputs, parts[0].weight, x.shape.back(1)))
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].shape[1]};
  const int threads = call.pool.size();
  int64_t items = 0, work = 0;
  for (Part& part : parts) {
    int64_t n = part.weight.n;
    part.plan = make_plan(isa, m, n, k, threads);
    part.first_item = items;
    part.column_items = (n + part.plan.columns - 1) / part.plan.columns;
    items += part.column_items * ((m + part.plan.rows - 1) / part.plan.rows);
    work += m * n * k * (part.gated() ? 2 : 1);
  }
  const Scratch scratch(isa, x, parts, threads);
  std::byte *packed = call.scratch.data() + scratch.arranged, *own = packed + scratch.packed;
  const float* rows = x.as<float>();
  if (parts[0].weight.is_blocked) {
    auto* arranged = reinterpret_cast<float*>(call.scratch.data());
    const int64_t given = x.shape.back(1);
    if constexpr (!rounds_x(isa))
      share_ranges(call.pool, m, 1, k, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i)
          blocked_tiles(isa).arrange(x.as<float>() + i * given, given, parts[0].weight.blocked, arranged + i * k);
      });
    rows = arranged;
  }
  const int64_t group = packed_tiles(isa).group(m);
  if (scratch.packed) {
    share(call.pool, (m + group - 1) / group, m * k,
          [&](int64_t index, int) { packed_tiles(isa).pack(rows, m, k, index, packed); });
  }
  share(call.pool, items, work, [&](int64_t item, int index) {
    size_t p = 0;
    while (p + 1 < parts.size() && parts[p + 1].first_item <= item) ++p;
    const Part& part = parts[p];
    item -= part.first_item;
    int64_t i = item / part.column_items * part.plan.rows, j = item % part.column_items * part.plan.columns;
    std::byte* block = own + index * (scratch.block + scratch.side + scratch.rows);
    run_item<isa>({rows, k, scratch.packed ? packed : nullptr, group, reinterpret_cast<float*>(block),
                   reinterpret_cast<float*>(block + scratch.block),
                   reinterpret_cast<float*>(block + scratch.block + scratch.side), threads},
                  part, i, std::min(part.plan.rows, m - i), j, std::min(part.plan.columns, part.weight.n - j),
                  activation);
  });
  return {};
}

// ---- the three ops ----

/// Fills `parts` and returns their number. `outputs` is empty if only scratch is computed.
using PartsOf = size_t (*)(const LinearState& state, std::span<const TensorView> inputs,
                           std::span<const TensorView> outputs, Part* parts);

size_t linear_parts(const LinearState& state, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                    Part* parts) {
  parts[0].weight = operand_weight(state, inputs, linear_w, linear_scales, linear_zeros);
  if (!outputs.empty()) parts[0].y = &outputs[0];
  if (inputs.size() > linear_bias && inputs[linear_bias].present()) parts[0].bias = &inputs[linear_bias];
  return 1;
}

size_t linears_parts(const LinearState& state, std::span<const TensorView> inputs,
                     std::span<const TensorView> outputs, Part* parts) {
  const size_t each = state.parts, count = (inputs.size() - 1) / each;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = 1 + i * each;
    parts[i].weight = operand_weight(state, inputs, at, at + 1, each > 2 ? at + 2 : inputs.size());
    if (!outputs.empty()) parts[i].y = &outputs[i];
  }
  return count;
}

size_t gated_parts(const LinearState& state, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                   Part* parts) {
  parts[0].gate = operand_weight(state, inputs, gated_gate, gated_gate_scales, gated_gate_zeros);
  parts[0].weight = operand_weight(state, inputs, gated_up, gated_up_scales, gated_up_zeros);
  if (!outputs.empty()) parts[0].y = &outputs[0];
  return 1;
}

Unary no_activation(const LinearState&) { return Unary::identity; }
Unary gate_activation(const LinearState& state) { return static_cast<const GateState&>(state).activation; }

template <Isa isa, PartsOf parts_of, Unary (*activation)(const LinearState&)>
KernelStatus run(const KernelCall& call) {
  const auto& state = *static_cast<const LinearState*>(call.state);
  Part parts[most_weights];
  const size_t count = parts_of(state, call.inputs, call.outputs, parts);
  return run_parts<isa>(call, {parts, count}, activation(state));
}

template <Isa isa, PartsOf parts_of>
int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  Part parts[most_weights];
  const size_t count = parts_of(*static_cast<const LinearState*>(state), inputs, {}, parts);
  return Scratch(isa, inputs[0], {parts, count}, threads).bytes(threads);
}

bool is_f32(const OperandInfo& x) { return x.dtype == DType::f32; }

bool accepts_linear(const NodeInfo& node) {
  if (!is_f32(node.inputs[linear_x]) || !is_weight(node, linear_w, linear_scales, linear_zeros)) return false;
  if (is_absent(node, linear_bias)) return true;
  DType bias = node.inputs[linear_bias].dtype;
  return bias == DType::f32 || bias == DType::bf16 || bias == DType::f16;
}
bool accepts_linears(const NodeInfo& node) {
  const int64_t parts = node.attributes.integer("parts", 1);
  if (!is_f32(node.inputs[0]) || parts < 1 || parts > 3) return false;
  const auto each = static_cast<size_t>(parts);
  if ((node.inputs.size() - 1) % each || node.inputs.size() - 1 > most_weights * each) return false;
  for (size_t i = 1; i < node.inputs.size(); i += each) {
    if (!is_weight(node, i, each > 1 ? i + 1 : node.inputs.size(), each > 2 ? i + 2 : node.inputs.size()))
      return false;
    const bool blocked = node.inputs[i].rank == 3, first = node.inputs[1].rank == 3;
    if (blocked != first || (blocked && node.inputs[i].dtype != node.inputs[1].dtype)) return false;
  }
  return true;
}
bool accepts_gated(const NodeInfo& node) {
  const OperandInfo &gate = node.inputs[gated_gate], &up = node.inputs[gated_up];
  return is_f32(node.inputs[gated_x]) && is_weight(node, gated_gate, gated_gate_scales, gated_gate_zeros) &&
         is_weight(node, gated_up, gated_up_scales, gated_up_zeros) && up.dtype == gate.dtype && up.rank == gate.rank;
}

/// Nodes whose x may be rounded to bf16 have attribute round_x = 1; all their weights must be bf16.
template <bool (*accepts)(const NodeInfo&), bool has_bias>
bool accepts_rounded(const NodeInfo& node) {
  if (!accepts(node) || node.attributes.integer("round_x", 0) != 1) return false;
  auto weights = has_bias ? node.inputs.subspan(1, 1) : node.inputs.subspan(1);
  return std::all_of(weights.begin(), weights.end(), [](const OperandInfo& w) { return w.dtype == DType::bf16; });
}

void read_attributes(const NodeInfo& node, LinearState& state) {
  state.zero = static_cast<float>(node.attributes.integer("zero", 0));
  state.parts = static_cast<size_t>(node.attributes.integer("parts", 1));
}

std::shared_ptr<const KernelState> prepare_linear(const NodeInfo& node) {
  auto state = std::make_shared<LinearState>();
  read_attributes(node, *state);
  return state;
}

std::shared_ptr<const KernelState> prepare_gated(const NodeInfo& node) {
  auto state = std::make_shared<GateState>();
  read_attributes(node, *state);
  state->activation = unary_activation(node);
  return state;
}

template <Isa isa>
void add_for(KernelTable& table) {
  constexpr const char* dtypes = rounds_x(isa) ? "f32 x bf16, round_x" : "f32 x f32|bf16|f16|2 to 8 bits";
  add_kernel(table, isa,
             {.op = "plait.Linear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linear, true> : accepts_linear,
              .prepare = prepare_linear,
              .scratch_bytes = scratch_bytes<isa, linear_parts>,
              .run = run<isa, linear_parts, no_activation>});
  add_kernel(table, isa,
             {.op = "plait.Linears",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linears, false> : accepts_linears,
              .prepare = prepare_linear,
              .scratch_bytes = scratch_bytes<isa, linears_parts>,
              .run = run<isa, linears_parts, no_activation>});
  add_kernel(table, isa,
             {.op = "plait.GatedLinear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_gated, false> : accepts_gated,
              .prepare = prepare_gated,
              .scratch_bytes = scratch_bytes<isa, gated_parts>,
              .run = run<isa, gated_parts, gate_activation>});
}

}  // namespace

Unary unary_activation(const NodeInfo& node) {
  switch (activation_of(node.attributes, node.op)) {
    case Activation::silu: return Unary::silu;
    case Activation::gelu_tanh: return Unary::gelu_tanh;
    case Activation::gelu: return Unary::gelu;
    case Activation::relu: return Unary::relu;
    case Activation::identity: break;
  }
  return Unary::identity;
}

void add_linear(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu
