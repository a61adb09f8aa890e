// plait.Embedding, plait.GatherRows and plait.KvWrite.
#include "kernels/cuda/kernels/moves.h"

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/linear_pack.h"

namespace plait::cuda {
namespace {

// ---- embedding ----

struct EmbeddingState : KernelState {
  const char* kernel = nullptr;
  ShardedAxis vocabulary;
  int zero = 0;
};

/// Whether the table has the layout of a Linear's weights, so that a head may share it.
bool is_packed(const NodeInfo& node) {
  const OperandInfo &table = node.inputs[0], scales = operand(node.inputs, 2), zeros = operand(node.inputs, 3);
  if (!table.constant || !weight_layout(table.dtype)) return false;
  if (table.rank == 2) return has_element(table.dtype);
  return table.rank == 3 && scales.constant && has_element(scales.dtype) &&
         (zeros.constant || zeros.dtype == DType::none);
}

bool accepts_embedding(const NodeInfo& node) {
  const OperandInfo& table = node.inputs[0];
  return (is_packed(node) || (table.rank == 2 && has_element(table.dtype))) && is_index(node.inputs[1].dtype) &&
         node.outputs[0].dtype == DType::f32;
}

const PackedLayout* pack_embedding(const NodeInfo& node, size_t i) {
  if (!is_packed(node) || i == 1) return nullptr;
  if (i == 0) return weight_layout(node.inputs[0].dtype);
  if (node.inputs[0].rank != 3 || node.inputs[i].dtype == DType::none) return nullptr;
  return i == 2 ? scale_layout() : zero_layout(node.inputs[0].dtype);
}

std::shared_ptr<const KernelState> prepare_embedding(const NodeInfo& node) {
  auto state = std::make_shared<EmbeddingState>();
  const DType dtype = node.inputs[0].dtype;
  state->vocabulary = ShardedAxis::of(node.attributes);
  state->zero = static_cast<int>(node.attributes.integer("zero", 0)) + code_shift(dtype);
  if (!is_packed(node)) state->kernel = by_element(dtype, "embed_f32", "embed_bf16", "embed_f16");
  else if (node.inputs[0].rank == 3) state->kernel = dtype_bits(dtype) == 8 ? "embed_int8" : "embed_int4";
  else state->kernel = dtype == DType::bf16 ? "embed_packed_bf16" : "embed_packed_f16";
  return state;
}

KernelStatus run_embedding(const KernelCall& call) {
  const auto& state = static_cast<const EmbeddingState&>(*call.state);
  const TensorView &table = call.inputs[0], &ids = call.inputs[1];
  const int64_t h = call.outputs[0].shape.back(1), rows = table.shape[0];
  EmbeddingOperands o{};
  o.table = table.data, o.scales = operand(call.inputs, 2).data, o.zeros = operand(call.inputs, 3).data;
  o.y = data_of<float>(call.outputs[0]), o.ids = indices_of(ids), o.report = report_of(call);
  o.rows = rows, o.offset = state.vocabulary.offset, o.whole = state.vocabulary.whole;
  o.zero = static_cast<float>(state.zero), o.h = static_cast<int32_t>(h), o.units = static_cast<int32_t>(units_of(h));
  if (table.shape.rank() == 3) {
    if (h > table.shape[1] * table.shape[2]) return {KernelCode::bad_value, 0, h};
    o.blocks = static_cast<int32_t>(table.shape[1]), o.block = static_cast<int32_t>(table.shape[2]);
    o.block_shift = block_shift_of(o.block), o.units = o.blocks << o.block_shift;
  } else if (table.shape[1] != h) {
    return {KernelCode::bad_value, 0, h};
  }
  o.give = ranks_of(call);
  return launch(call, state.kernel, embedding_geometry(h ? ids.elements() : 0), o);
}

// ---- rows ----

bool accepts_gather(const NodeInfo& node) {
  return dtype_bits(node.inputs[0].dtype) >= 8 && is_index(node.inputs[1].dtype);
}

/// x [outer, s, inner elements], rows [outer, n], or [n] that are `shared`.
KernelStatus gather(const KernelCall& call, int64_t outer, int64_t s, int64_t n, int64_t inner, bool shared) {
  const TensorView& x = call.inputs[0];
  const int64_t bytes = inner * dtype_bits(x.dtype) / 8;
  const bool words = bytes % 4 == 0;
  const GatherOperands o{
      x.data, call.outputs[0].data, indices_of(call.inputs[1]), report_of(call), s, n, words ? bytes / 4 : bytes,
      shared};
  return launch(call, words ? "gather_rows_4" : "gather_rows_1", gather_geometry(outer * n), o);
}

KernelStatus run_gather_rows(const KernelCall& call) {
  const Shape &x = call.inputs[0].shape, &rows = call.inputs[1].shape;
  return gather(call, rows[0], x[1], rows[1], x.elements(2, x.rank()), false);
}

struct GatherState : KernelState {
  int64_t axis = 0;
};

std::shared_ptr<const KernelState> prepare_gather(const NodeInfo& node) {
  auto state = std::make_shared<GatherState>();
  state->axis = node.attributes.integer("axis", 0);
  return state;
}

KernelStatus run_gather(const KernelCall& call) {
  const Shape& x = call.inputs[0].shape;
  const int64_t given = static_cast<const GatherState&>(*call.state).axis;
  const int axis = static_cast<int>(given < 0 ? given + x.rank() : given);
  return gather(call, x.elements(0, axis), x[axis], call.inputs[1].elements(), x.elements(axis + 1, x.rank()), true);
}

// ---- pages ----

bool accepts_kv_write(const NodeInfo& node) {
  return has_element(node.inputs[0].dtype) && node.inputs[1].dtype == node.inputs[0].dtype &&
         node.inputs[2].dtype == DType::f32 && node.inputs[3].dtype == DType::f32 && is_index(node.inputs[4].dtype);
}

KernelStatus run_kv_write(const KernelCall& call) {
  for (size_t i = 0; i < 2; ++i) {  // pages are updated in place, but where a graph keeps the old ones
    const TensorView &from = call.inputs[i], &to = call.outputs[i];
    if (from.data == to.data) continue;
    const int64_t halves = from.bytes() / 2;
    launch(call, "copy_halves", copy_geometry(halves), from.data, to.data, halves);
  }
  const TensorView &keys = call.outputs[0], &values = call.outputs[1], &slots = call.inputs[4];
  const KvWriteOperands o{keys.data,
                          values.data,
                          data_of<const float>(call.inputs[2]),
                          data_of<const float>(call.inputs[3]),
                          indices_of(slots),
                          report_of(call),
                          keys.shape[0],
                          static_cast<int32_t>(keys.shape[1]),
                          static_cast<int32_t>(keys.shape[2]),
                          static_cast<int32_t>(keys.shape[3]),
                          static_cast<int32_t>(values.shape[3])};
  return launch(call, by_element(keys.dtype, "kv_write_f32", "kv_write_bf16", "kv_write_f16"),
                kv_write_geometry(slots.elements(), keys.shape[1]), o);
}

}  // namespace

void add_moves(KernelTable& table) {
  add_kernel(table, {.op = "plait.Embedding",
                     .dtypes = "f32|bf16|f16|2 to 8 bits",
                     .accepts = accepts_embedding,
                     .prepare = prepare_embedding,
                     .run = run_embedding,
                     .pack = pack_embedding});
  add_kernel(table, {.op = "plait.GatherRows", .dtypes = "any", .accepts = accepts_gather, .run = run_gather_rows});
  add_kernel(
      table,
      {.op = "Gather", .dtypes = "any", .accepts = accepts_gather, .prepare = prepare_gather, .run = run_gather});
  add_kernel(table, {.op = "plait.KvWrite",
                     .dtypes = "f32|bf16|f16 x f32",
                     .accepts = accepts_kv_write,
                     .run = run_kv_write,
                     .in_place = 0});
}

}  // namespace plait::cuda
