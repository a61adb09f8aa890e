// GatherElements, GatherND, ScatterElements, ScatterND, Tile and ConstantOfShape.
#include "kernels/cuda/kernels/indexing.h"

#include <cstring>

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/nest.h"

namespace plait::cuda {
namespace {

using Names = std::array<const char*, 4>;

struct IndexingState : KernelState {
  int64_t axis = 0;
  int batch = 0;
};

std::shared_ptr<const KernelState> prepare_indexing(const NodeInfo& node) {
  auto state = std::make_shared<IndexingState>();
  state->axis = node.attributes.integer("axis", 0);
  state->batch = static_cast<int>(node.attributes.integer("batch_dims", 0));
  return state;
}

bool accepts_gather_at(const NodeInfo& node) {
  return has_word(node.inputs[0].dtype) && is_index(node.inputs[1].dtype);
}
/// Several updates of one element would have no order.
bool accepts_scatter_at(const NodeInfo& node) {
  return accepts_gather_at(node) && node.inputs[2].dtype == node.inputs[0].dtype &&
         node.attributes.string("reduction", "none") == "none";
}

/// The data of a scatter, before it.
void copy_data(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  if (x.data == y.data) return;
  const Shape flat{y.elements()}, step{1};
  const CopyOperands o{x.data, y.data, make_nest(flat, step, step)};
  launch(call, by_word(x.dtype, {"copy_1", "copy_2", "copy_4", "copy_8"}), map_geometry(o.nest.count), o);
}

/// `indexed`: the array that the indices are of.
KernelStatus run_elements(const KernelCall& call, const TensorView& indexed, const TensorView& x,
                          const Names& names) {
  const TensorView& indices = call.inputs[1];
  const int rank = indexed.shape.rank();
  const int64_t given = static_cast<const IndexingState&>(*call.state).axis, axis = given < 0 ? given + rank : given;
  if (indices.shape.rank() != rank || axis < 0 || axis >= rank)
    return {KernelCode::bad_value, 1, indices.shape.rank()};
  for (int i = 0; i < rank; ++i)
    if (i != axis && indices.shape[i] > indexed.shape[i]) return {KernelCode::bad_value, 1, indices.shape[i]};
  Shape steps = steps_of(indexed.shape);
  const int64_t pitch = std::exchange(steps[static_cast<int>(axis)], 0);
  const ElementsOperands o{x.data,
                           call.outputs[0].data,
                           indices_of(indices),
                           report_of(call),
                           make_nest(indices.shape, steps, steps_of(indices.shape)),
                           indexed.shape[static_cast<int>(axis)],
                           pitch};
  return launch(call, by_word(x.dtype, names), map_geometry(o.nest.count), o);
}

KernelStatus run_gather_elements(const KernelCall& call) {
  return run_elements(call, call.inputs[0], call.inputs[0],
                      {"gather_elements_1", "gather_elements_2", "gather_elements_4", "gather_elements_8"});
}
KernelStatus run_scatter_elements(const KernelCall& call) {
  copy_data(call);
  return run_elements(call, call.outputs[0], call.inputs[2],
                      {"scatter_elements_1", "scatter_elements_2", "scatter_elements_4", "scatter_elements_8"});
}

KernelStatus run_tuples(const KernelCall& call, const TensorView& indexed, const TensorView& x, int batch,
                        const Names& names) {
  const TensorView& indices = call.inputs[1];
  const int rank = indexed.shape.rank();
  if (indices.shape.rank() < 1 + batch || batch + indices.shape.back(1) > rank)
    return {KernelCode::bad_value, 1, indices.shape.rank()};
  const int depth = static_cast<int>(indices.shape.back(1)), last = batch + depth;
  TuplesOperands o{};
  o.x = x.data, o.y = call.outputs[0].data, o.indices = indices_of(indices), o.report = report_of(call);
  o.batches = indexed.shape.elements(0, batch);
  o.tuples = indices.shape.elements(batch, indices.shape.rank() - 1);
  o.depth = depth, o.inner = indexed.shape.elements(last, rank), o.pitch = indexed.shape.elements(batch, rank);
  for (int i = 0; i < depth; ++i) o.sizes[i] = indexed.shape[batch + i];
  return launch(call, by_word(x.dtype, names), map_geometry(o.batches * o.tuples * o.inner), o);
}

KernelStatus run_gather_nd(const KernelCall& call) {
  return run_tuples(call, call.inputs[0], call.inputs[0], static_cast<const IndexingState&>(*call.state).batch,
                    {"gather_tuples_1", "gather_tuples_2", "gather_tuples_4", "gather_tuples_8"});
}
KernelStatus run_scatter_nd(const KernelCall& call) {
  copy_data(call);
  return run_tuples(call, call.outputs[0], call.inputs[2], 0,
                    {"scatter_tuples_1", "scatter_tuples_2", "scatter_tuples_4", "scatter_tuples_8"});
}

// ---- repeated elements ----

bool accepts_tile(const NodeInfo& node) { return has_word(node.inputs[0].dtype); }

KernelStatus run_tile(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  TileOperands o{};
  o.x = x.data, o.y = y.data, o.count = y.elements(), o.rank = y.shape.rank();
  for (int i = 0; i < y.shape.rank(); ++i) o.sizes[i] = y.shape[i], o.sizes_of_x[i] = x.shape[i];
  return launch(call, by_word(x.dtype, {"tile_1", "tile_2", "tile_4", "tile_8"}), map_geometry(o.count), o);
}

struct FillState : KernelState {
  uint64_t bits = 0;
};

bool accepts_fill(const NodeInfo& node) { return has_word(node.outputs[0].dtype); }

std::shared_ptr<const KernelState> prepare_fill(const NodeInfo& node) {
  auto state = std::make_shared<FillState>();
  if (const Attribute* found = node.attributes.find("value"))
    if (const TensorView value = std::get<Tensor>(*found).view(); value.elements() > 0)
      std::memcpy(&state->bits, value.data, static_cast<size_t>(dtype_bits(value.dtype) / 8));
  return state;
}

KernelStatus run_fill(const KernelCall& call) {
  const TensorView& y = call.outputs[0];
  const FillOperands o{y.data, y.elements(), static_cast<const FillState&>(*call.state).bits};
  return launch(call, by_word(y.dtype, {"fill_1", "fill_2", "fill_4", "fill_8"}), map_geometry(o.count), o);
}

void add_indexed(KernelTable& table, const char* op, bool (*accepts)(const NodeInfo&),
                 KernelStatus (*run)(const KernelCall&)) {
  add_kernel(table, {.op = op,
                     .dtypes = "any",
                     .accepts = accepts,
                     .prepare = prepare_indexing,
                     .run = run,
                     .in_place = accepts == accepts_scatter_at ? 0 : -1});
}

}  // namespace

void add_indexing(KernelTable& table) {
  add_indexed(table, "GatherElements", accepts_gather_at, run_gather_elements);
  add_indexed(table, "GatherND", accepts_gather_at, run_gather_nd);
  add_indexed(table, "ScatterElements", accepts_scatter_at, run_scatter_elements);
  add_indexed(table, "ScatterND", accepts_scatter_at, run_scatter_nd);
  add_kernel(table, {.op = "Tile", .dtypes = "any", .accepts = accepts_tile, .run = run_tile, .unread = 1U << 1});
  add_kernel(table, {.op = "ConstantOfShape",
                     .dtypes = "any",
                     .accepts = accepts_fill,
                     .prepare = prepare_fill,
                     .run = run_fill,
                     .unread = 1U << 0});
}

}  // namespace plait::cuda
