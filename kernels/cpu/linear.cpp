// plait.Linear, plait.Linears and plait.GatedLinear: the shares of the threads. The arithmetic is in linear_tile.cpp.
#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/linear_tile.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/rounded_tile.h"
#include "kernels/cpu/share.h"

namespace plait::cpu {
namespace {

/// How a linear of n rows of w is cut. Depends on the number of rows of x only where the bits do not.
struct LinearPlan {
  int64_t columns;  ///< rows of w in an item
  int64_t rows;     ///< rows of x in an item
};

/// At most this many rows of x at a time: bounds the scratch for the gate to rows * columns.
constexpr int64_t most_rows = 512;

/// A block of w in f32 should take no more than half of a 1 MB L2, and there should be about 4 items a thread.
int64_t plan_columns(int64_t n, int64_t k, int threads) {
  int64_t fits = (512 << 10) / (4 * std::max<int64_t>(k, 1)), fair = n / (4 * threads);
  return std::clamp<int64_t>(std::min(fits, fair) / 8 * 8, 16, 64);
}

/// Rows of w in an item. Few rows of x keep nothing of w: long items, so that memory is read in long streams.
int64_t item_columns(int64_t m, int64_t n, int64_t k, int threads) {
  constexpr int64_t few = 12;
  if (m > few) return plan_columns(n, k, threads);
  return std::clamp<int64_t>(n / (4 * threads) / 8 * 8, 16, 1024);
}

LinearPlan make_plan(int64_t m, int64_t n, int64_t k, int threads) {
  LinearPlan plan{item_columns(m, n, k, threads), std::min(m, most_rows)};
  int64_t items = (n + plan.columns - 1) / plan.columns;
  // Few rows of w, many of x: cut x as well, in parts of at least 48 rows, which pay for converting w again.
  if (items < 4 * threads && m > 96) {
    int64_t parts = std::min((4 * threads + items - 1) / std::max<int64_t>(items, 1), m / 48);
    plan.rows = std::min(plan.rows, (m + parts - 1) / parts);
  }
  plan.rows = (plan.rows + rounded_group - 1) / rounded_group * rounded_group;
  return plan;
}

/// One weight and where its outputs go; `gate` is the second weight of GatedLinear.
struct Part {
  const TensorView* w;
  const TensorView* y;
  const TensorView* bias = nullptr;
  const TensorView* gate = nullptr;
  int64_t first_item = 0, column_items = 0;
  LinearPlan plan{};
};

struct GateState : KernelState {
  Unary activation = Unary::identity;
};

int64_t rows_of(const TensorView& x) { return x.shape.elements(0, x.shape.rank() - 1); }

int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t tile_scratch(int64_t n, int64_t k, int threads) {
  return align(4 * linear_block_scratch(plan_columns(n, k, threads), k));
}
/// Scratch of one worker: what a block needs, and behind it the gate's part (or the bias).
int64_t worker_scratch(int64_t m, int64_t n, int64_t k, int threads) {
  return tile_scratch(n, k, threads) +
         align(4 * item_columns(m, n, k, threads) * std::min(std::max<int64_t>(m, 1), most_rows));
}

/// Kernels of these instruction sets round x to bf16, and pack it before they begin.
constexpr bool rounds_x(Isa isa) { return isa >= Isa::avx512_bf16; }
/// Loops over f32 of an instruction set that has none of its own.
constexpr Isa loops_of(Isa isa) { return rounds_x(isa) ? Isa::avx512 : isa; }

/// Rows [i, i + rows) of x with rows [j, j + columns) of w. `packed`: x for the kernels that round it.
template <Isa isa>
void run_block(const TensorView& x, const std::byte* packed, const TensorView& w, int64_t i, int64_t rows, int64_t j,
               int64_t columns, float* y, int64_t ldy, std::byte* scratch) {
  const int64_t k = x.shape.back(1);
  const uint8_t* weights = w.as<uint8_t>() + j * k * dtype_bits(w.dtype) / 8;
  if constexpr (rounds_x(isa)) rounded_tiles(isa).block({packed, i, rows, weights, columns, k, y, ldy});
  else
    linear_tiles(isa).block(
        {x.as<float>() + i * k, k, rows, weights, w.dtype, columns, k, y, ldy, reinterpret_cast<float*>(scratch)});
}

/// The item's rows [i, i + rows) and columns [j, j + columns) of one part.
template <Isa isa>
void run_item(const TensorView& x, const std::byte* packed, const Part& part, int64_t i, int64_t rows, int64_t j,
              int64_t columns, Unary activation, std::byte* scratch, int64_t gate_offset) {
  const int64_t n = part.w->shape[0];
  float* y = part.y->as<float>() + i * n + j;
  run_block<isa>(x, packed, *part.w, i, rows, j, columns, y, n, scratch);
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  float* side = reinterpret_cast<float*>(scratch + gate_offset);
  if (part.gate) {
    run_block<isa>(x, packed, *part.gate, i, rows, j, columns, side, columns, scratch);
    for (int64_t row = 0; row < rows; ++row)
      loops.gate[static_cast<int>(activation)](side + row * columns, y + row * n, columns);
  }
  if (part.bias) {
    const uint8_t* bias = part.bias->as<uint8_t>() + j * dtype_bits(part.bias->dtype) / 8;
    if (part.bias->dtype == DType::bf16) loops.widen_bf16(bias, side, columns);
    else if (part.bias->dtype == DType::f16) loops.widen_f16(bias, side, columns);
    else memcpy(side, bias, static_cast<size_t>(columns) * sizeof(float));
    for (int64_t row = 0; row < rows; ++row)
      loops.binary[static_cast<int>(Binary::add)](y + row * n, 1, side, 1, y + row * n, columns);
  }
}

template <Isa isa>
KernelStatus run_parts(const KernelCall& call, std::span<Part> parts, Unary activation) {
  const TensorView& x = call.inputs[0];
  const int64_t m = rows_of(x), k = x.shape.back(1);
  const int threads = call.pool.size();
  int64_t items = 0, work = 0, gate_offset = 0;
  for (Part& part : parts) {
    int64_t n = part.w->shape[0];
    part.plan = make_plan(m, n, k, threads);
    part.first_item = items;
    part.column_items = (n + part.plan.columns - 1) / part.plan.columns;
    items += part.column_items * ((m + part.plan.rows - 1) / std::max<int64_t>(part.plan.rows, 1));
    work += m * n * k * (part.gate ? 2 : 1);
    gate_offset = std::max(gate_offset, tile_scratch(n, k, threads));
  }
  if (m == 0) return {};
  std::byte *packed = call.scratch.data(), *own = packed;
  if constexpr (rounds_x(isa)) {
    own += align(rounded_bytes(m, k));
    share(call.pool, (m + rounded_group - 1) / rounded_group, m * k,
          [&](int64_t group, int) { rounded_tiles(isa).pack(x.as<float>(), m, k, group, packed); });
  }
  const int64_t stride = (call.scratch.data() + call.scratch.size() - own) / threads / 64 * 64;
  share(call.pool, items, work, [&](int64_t item, int worker) {
    size_t p = 0;
    while (p + 1 < parts.size() && parts[p + 1].first_item <= item) ++p;
    const Part& part = parts[p];
    item -= part.first_item;
    int64_t i = item / part.column_items * part.plan.rows, j = item % part.column_items * part.plan.columns;
    run_item<isa>(x, packed, part, i, std::min(part.plan.rows, m - i), j,
                  std::min(part.plan.columns, part.w->shape[0] - j), activation, own + worker * stride, gate_offset);
  });
  return {};
}

template <Isa isa>
KernelStatus run_linear(const KernelCall& call) {
  Part part{&call.inputs[1], &call.outputs[0]};
  if (call.inputs.size() > 2 && call.inputs[2].present()) part.bias = &call.inputs[2];
  return run_parts<isa>(call, {&part, 1}, Unary::identity);
}

constexpr size_t most_weights = 8;  ///< of plait.Linears

template <Isa isa>
KernelStatus run_linears(const KernelCall& call) {
  Part parts[most_weights];
  size_t count = call.inputs.size() - 1;
  for (size_t i = 0; i < count; ++i) parts[i] = {&call.inputs[i + 1], &call.outputs[i]};
  return run_parts<isa>(call, {parts, count}, Unary::identity);
}

template <Isa isa>
KernelStatus run_gated(const KernelCall& call) {
  Part part{&call.inputs[2], &call.outputs[0], nullptr, &call.inputs[1]};
  return run_parts<isa>(call, {&part, 1}, static_cast<const GateState*>(call.state)->activation);
}

int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  const TensorView& x = inputs[0];
  int64_t most_tiles = 0, most_sides = 0;
  for (const TensorView& w : inputs.subspan(1)) {
    if (w.shape.rank() != 2) continue;
    int64_t tiles = tile_scratch(w.shape[0], x.shape.back(1), threads);
    most_tiles = std::max(most_tiles, tiles);
    most_sides = std::max(most_sides, worker_scratch(rows_of(x), w.shape[0], x.shape.back(1), threads) - tiles);
  }
  return (most_tiles + most_sides) * threads;
}

int64_t rounded_scratch(const KernelState* state, std::span<const TensorView> inputs,
                        std::span<const TensorView> outputs, int threads) {
  return align(rounded_bytes(rows_of(inputs[0]), inputs[0].shape.back(1))) +
         scratch_bytes(state, inputs, outputs, threads);
}

bool is_weight(const OperandInfo& w) {
  return w.rank == 2 && (w.dtype == DType::f32 || w.dtype == DType::bf16 || w.dtype == DType::f16);
}
bool is_f32(const OperandInfo& x) { return x.dtype == DType::f32; }

bool accepts_linear(const NodeInfo& node) {
  if (!is_f32(node.inputs[0]) || !is_weight(node.inputs[1])) return false;
  if (node.inputs.size() < 3 || node.inputs[2].dtype == DType::none) return true;
  DType bias = node.inputs[2].dtype;
  return bias == DType::f32 || bias == DType::bf16 || bias == DType::f16;
}
bool accepts_linears(const NodeInfo& node) {
  return is_f32(node.inputs[0]) && node.inputs.size() <= most_weights + 1 &&
         std::all_of(node.inputs.begin() + 1, node.inputs.end(), is_weight);
}
bool accepts_gated(const NodeInfo& node) {
  return is_f32(node.inputs[0]) && is_weight(node.inputs[1]) && node.inputs[2].dtype == node.inputs[1].dtype;
}

/// Nodes whose x may be rounded to bf16 say so (attribute round_x = 1); all their weights must be bf16.
template <bool (*accepts)(const NodeInfo&), bool has_bias>
bool accepts_rounded(const NodeInfo& node) {
  if (!accepts(node) || node.attributes.integer("round_x", 0) != 1) return false;
  auto weights = has_bias ? node.inputs.subspan(1, 1) : node.inputs.subspan(1);
  return std::all_of(weights.begin(), weights.end(), [](const OperandInfo& w) { return w.dtype == DType::bf16; });
}

std::shared_ptr<const KernelState> prepare_gated(const NodeInfo& node) {
  auto state = std::make_shared<GateState>();
  std::string name = node.attributes.string("activation", "identity");
  if (name == "silu") state->activation = Unary::silu;
  else if (name == "gelu_tanh") state->activation = Unary::gelu_tanh;
  else if (name == "gelu") state->activation = Unary::gelu;
  else if (name == "relu") state->activation = Unary::relu;
  else if (name != "identity")
    throw Error(Code::unsupported, cat(node.op, ": unknown activation ", quote(name)),
                "use silu, gelu_tanh, gelu, relu or identity");
  return state;
}

template <Isa isa>
void add_for(KernelTable& table) {
  constexpr const char* dtypes = rounds_x(isa) ? "f32 x bf16, round_x" : "f32 x f32|bf16|f16";
  constexpr auto scratch = rounds_x(isa) ? rounded_scratch : scratch_bytes;
  add_kernel(table, isa,
             {.op = "plait.Linear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linear, true> : accepts_linear,
              .scratch_bytes = scratch,
              .run = run_linear<isa>});
  add_kernel(table, isa,
             {.op = "plait.Linears",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linears, false> : accepts_linears,
              .scratch_bytes = scratch,
              .run = run_linears<isa>});
  add_kernel(table, isa,
             {.op = "plait.GatedLinear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_gated, false> : accepts_gated,
              .prepare = prepare_gated,
              .scratch_bytes = scratch,
              .run = run_gated<isa>});
}

}  // namespace

void add_linear(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu
