// plait.Linear, plait.Linears and plait.GatedLinear: the shares of the threads. The arithmetic is in linear_tile.cpp.
#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/linear_tile.h"
#include "kernels/cpu/packed_tile.h"
#include "kernels/cpu/register.h"
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

/// Kernels of these instruction sets round x to bf16.
constexpr bool rounds_x(Isa isa) { return isa >= Isa::avx512_bf16; }
/// Loops over f32 of an instruction set that has none of its own.
constexpr Isa loops_of(Isa isa) { return rounds_x(isa) ? Isa::avx512 : isa; }
/// Up to so many rows of x memory decides: w is read once, in place.
constexpr int64_t few_rows(Isa isa) { return isa == Isa::avx2 ? 6 : 12; }
constexpr bool packs_x(Isa isa, int64_t m) { return rounds_x(isa) || m > few_rows(isa); }

/// A block of w in f32 should take no more than half of a 1 MB L2, and there should be about 4 items a thread.
int64_t plan_columns(Isa isa, int64_t n, int64_t k, int threads) {
  const int64_t multiple = std::max<int64_t>(packed_tiles(isa).columns, 16);
  int64_t fits = (512 << 10) / (4 * std::max<int64_t>(k, 1)), fair = n / (4 * threads);
  return std::clamp<int64_t>(std::min(fits, fair) / multiple * multiple, multiple, 64);
}

/// Rows of w in an item. Few rows of x keep nothing of w: long items, so that memory is read in long streams.
int64_t item_columns(Isa isa, int64_t m, int64_t n, int64_t k, int threads) {
  if (m > few_rows(isa)) return plan_columns(isa, n, k, threads);
  return std::clamp<int64_t>(n / (4 * threads) / 8 * 8, 16, 1024);
}

LinearPlan make_plan(Isa isa, int64_t m, int64_t n, int64_t k, int threads) {
  LinearPlan plan{item_columns(isa, m, n, k, threads), std::min(m, most_rows)};
  int64_t items = (n + plan.columns - 1) / plan.columns;
  // Few rows of w, many of x: cut x as well, in parts of at least 48 rows, which pay for converting w again.
  if (items < 4 * threads && m > 96) {
    int64_t parts = std::min((4 * threads + items - 1) / std::max<int64_t>(items, 1), m / 48);
    plan.rows = std::min(plan.rows, (m + parts - 1) / parts);
  }
  if (packs_x(isa, m)) {
    const int64_t group = packed_tiles(isa).group(m);
    plan.rows = (plan.rows + group - 1) / group * group;
  }
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

/// Scratch of a call: x, packed, for all workers; then for each of them what a block needs, and the gate's outputs (or
/// the bias).
struct Scratch {
  int64_t packed = 0, block = 0, side = 0;

  Scratch(Isa isa, const TensorView& x, std::span<const TensorView> weights, int threads) {
    const int64_t m = rows_of(x), k = x.shape.back(1);
    const bool packs = packs_x(isa, m);
    if (packs) packed = align(packed_tiles(isa).bytes(m, k));
    for (const TensorView& w : weights) {
      if (w.shape.rank() != 2) continue;
      const int64_t n = w.shape[0], columns = item_columns(isa, m, n, k, threads);
      if (packs) block = std::max(block, align(4 * packed_tiles(isa).scratch(columns, k)));
      side = std::max(side,
                      align(4 * columns * std::min(make_plan(isa, m, n, k, threads).rows, std::max<int64_t>(m, 1))));
    }
  }
  int64_t bytes(int threads) const { return packed + (block + side) * threads; }
};

/// What an item works with.
struct Worker {
  const TensorView& x;
  const std::byte* packed;  ///< null: x is taken as it is
  int64_t group;
  float* block;
  float* side;
  int threads;
};

/// Rows [i, i + rows) of x with rows [j, j + columns) of w. `next` is read soon after.
template <Isa isa>
void run_block(const Worker& worker, const TensorView& w, int64_t i, int64_t rows, int64_t j, int64_t columns,
               float* y, int64_t ldy, const uint8_t* next) {
  const int64_t k = worker.x.shape.back(1);
  const uint8_t* weights = w.as<uint8_t>() + j * k * dtype_bits(w.dtype) / 8;
  if (worker.packed)
    packed_tiles(isa).block(
        {worker.packed, worker.group, i, rows, weights, w.dtype, columns, k, y, ldy, worker.block, next});
  else if constexpr (!rounds_x(isa))
    linear_tiles(isa).block({worker.x.as<float>() + i * k, k, rows, weights, w.dtype, columns, k, y, ldy});
}

/// The item's rows [i, i + rows) and columns [j, j + columns) of one part.
template <Isa isa>
void run_item(const Worker& worker, const Part& part, int64_t i, int64_t rows, int64_t j, int64_t columns,
              Unary activation) {
  const int64_t n = part.w->shape[0], row_bytes = worker.x.shape.back(1) * dtype_bits(part.w->dtype) / 8;
  // Items go round among the threads: this one's next is likely the one `threads` further on.
  const int64_t later = j + worker.threads * part.plan.columns;
  const uint8_t* next = later + columns <= n ? part.w->as<uint8_t>() + later * row_bytes : nullptr;
  float *y = part.y->as<float>() + i * n + j, *side = worker.side;
  run_block<isa>(worker, *part.w, i, rows, j, columns, y, n,
                 part.gate ? part.gate->as<uint8_t>() + j * row_bytes : next);
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  if (part.gate) {
    run_block<isa>(worker, *part.gate, i, rows, j, columns, side, columns, next);
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
  if (m == 0) return {};
  const int threads = call.pool.size();
  int64_t items = 0, work = 0;
  for (Part& part : parts) {
    int64_t n = part.w->shape[0];
    part.plan = make_plan(isa, m, n, k, threads);
    part.first_item = items;
    part.column_items = (n + part.plan.columns - 1) / part.plan.columns;
    items += part.column_items * ((m + part.plan.rows - 1) / part.plan.rows);
    work += m * n * k * (part.gate ? 2 : 1);
  }
  const Scratch scratch(isa, x, call.inputs.subspan(1), threads);
  std::byte *packed = call.scratch.data(), *own = packed + scratch.packed;
  const int64_t group = packed_tiles(isa).group(m);
  if (scratch.packed) {
    share(call.pool, (m + group - 1) / group, m * k,
          [&](int64_t index, int) { packed_tiles(isa).pack(x.as<float>(), m, k, index, packed); });
  }
  share(call.pool, items, work, [&](int64_t item, int index) {
    size_t p = 0;
    while (p + 1 < parts.size() && parts[p + 1].first_item <= item) ++p;
    const Part& part = parts[p];
    item -= part.first_item;
    int64_t i = item / part.column_items * part.plan.rows, j = item % part.column_items * part.plan.columns;
    std::byte* block = own + index * (scratch.block + scratch.side);
    run_item<isa>({x, scratch.packed ? packed : nullptr, group, reinterpret_cast<float*>(block),
                   reinterpret_cast<float*>(block + scratch.block), threads},
                  part, i, std::min(part.plan.rows, m - i), j, std::min(part.plan.columns, part.w->shape[0] - j),
                  activation);
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

template <Isa isa>
int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  return Scratch(isa, inputs[0], inputs.subspan(1), threads).bytes(threads);
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
  add_kernel(table, isa,
             {.op = "plait.Linear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linear, true> : accepts_linear,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run_linear<isa>});
  add_kernel(table, isa,
             {.op = "plait.Linears",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_linears, false> : accepts_linears,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run_linears<isa>});
  add_kernel(table, isa,
             {.op = "plait.GatedLinear",
              .dtypes = dtypes,
              .accepts = rounds_x(isa) ? accepts_rounded<accepts_gated, false> : accepts_gated,
              .prepare = prepare_gated,
              .scratch_bytes = scratch_bytes<isa>,
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
