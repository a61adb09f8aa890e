// ReduceSum, ReduceMean, ReduceMax, ReduceMin and TopK.
#include "kernels/cuda/kernels/reduce.h"

#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

struct ReduceState : KernelState {
  float factor = 1;
  bool without_axes = true;
};

bool accepts_reduce(const NodeInfo& node) {
  const OperandInfo axes = operand(node.inputs, 1);
  return node.inputs[0].dtype == DType::f32 && node.outputs[0].dtype == DType::f32 &&
         (axes.dtype == DType::none || is_index(axes.dtype));
}

std::shared_ptr<const KernelState> prepare_reduce(const NodeInfo& node) {
  auto state = std::make_shared<ReduceState>();
  state->factor = static_cast<float>(node.attributes.integer("shards", 1));
  state->without_axes = node.attributes.integer("noop_with_empty_axes", 0) == 0;
  return state;
}

template <Reduction reduction>
KernelStatus run_reduce(const KernelCall& call) {
  const auto& state = static_cast<const ReduceState&>(*call.state);
  const TensorView &x = call.inputs[0], axes = operand(call.inputs, 1), &y = call.outputs[0];
  ReduceOperands o{};
  o.x = data_of<const float>(x), o.y = data_of<float>(y), o.report = report_of(call);
  if (axes.present()) o.axes = indices_of(axes), o.entries = axes.elements();
  o.rank = x.shape.rank(), o.count = y.elements();
  for (int i = 0; i < x.shape.rank(); ++i) o.sizes[i] = x.shape[i];
  o.factor = state.factor, o.reduction = reduction, o.without_axes = state.without_axes;
  return launch(call, "reduce_f32", warp_geometry(o.count), o);
}

template <Reduction reduction>
void add_reduction(KernelTable& table, const char* op) {
  add_kernel(table, {.op = op,
                     .dtypes = "f32",
                     .accepts = accepts_reduce,
                     .prepare = prepare_reduce,
                     .run = run_reduce<reduction>});
}

struct TopKState : KernelState {
  bool largest = true;
};

bool accepts_top_k(const NodeInfo& node) {
  const int64_t axis = node.attributes.integer("axis", -1);
  return node.inputs[0].dtype == DType::f32 && (axis == -1 || axis == node.inputs[0].rank - 1);
}

std::shared_ptr<const KernelState> prepare_top_k(const NodeInfo& node) {
  auto state = std::make_shared<TopKState>();
  state->largest = node.attributes.integer("largest", 1) != 0;
  return state;
}

KernelStatus run_top_k(const KernelCall& call) {
  const TensorView &x = call.inputs[0], values = call.outputs[0], indices = operand(call.outputs, 1);
  const int64_t width = x.shape.back(1), k = (values.present() ? values : indices).shape.back(1);
  if (k > width) return {KernelCode::index_out_of_range, 1, k};
  const TopKOperands o{data_of<const float>(x),
                       data_of<float>(values),
                       data_of<int64_t>(indices),
                       width ? x.elements() / width : 0,
                       width,
                       k,
                       static_cast<const TopKState&>(*call.state).largest};
  return launch(call, "top_k_f32", warp_geometry(o.rows), o);
}

}  // namespace

void add_reductions(KernelTable& table) {
  add_reduction<Reduction::sum>(table, "ReduceSum");
  add_reduction<Reduction::mean>(table, "ReduceMean");
  add_reduction<Reduction::maximum>(table, "ReduceMax");
  add_reduction<Reduction::minimum>(table, "ReduceMin");
  add_kernel(table, {.op = "TopK",
                     .dtypes = "f32",
                     .accepts = accepts_top_k,
                     .prepare = prepare_top_k,
                     .run = run_top_k,
                     .unread = 1U << 1});
}

}  // namespace plait::cuda
