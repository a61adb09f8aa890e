// plait.AddAdapters.
#include "kernels/cuda/kernels/adapters.h"

#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

bool accepts_adapters(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 && node.inputs[1].dtype == DType::f32 &&
         has_element(node.inputs[2].dtype) && node.inputs[3].dtype == node.inputs[2].dtype &&
         is_index(node.inputs[4].dtype);
}

int64_t adapter_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  return inputs[4].elements() * inputs[2].shape[1] * 4;
}

KernelStatus run_adapters(const KernelCall& call) {
  const TensorView &added = call.inputs[0], &x = call.inputs[1], &a = call.inputs[2], &b = call.inputs[3];
  AdapterOperands o{};
  o.x = data_of<const float>(x), o.added = data_of<const float>(added), o.a = a.data, o.b = b.data;
  o.low = reinterpret_cast<float*>(call.scratch.data()), o.y = data_of<float>(call.outputs[0]);
  o.adapters = indices_of(call.inputs[4]), o.report = report_of(call);
  o.tokens = call.inputs[4].elements(), o.count = a.shape[0];
  o.n = static_cast<int32_t>(b.shape[1]), o.k = static_cast<int32_t>(x.shape.back(1)),
  o.r = static_cast<int32_t>(a.shape[1]), o.element = element_of(a.dtype);
  o.give = ranks_of(call);
  launch(call, "adapters_low", warp_geometry(o.tokens * o.r), o);
  return launch(call, "adapters_add", map_geometry(o.tokens * o.n), o);
}

}  // namespace

void add_adapters(KernelTable& table) {
  add_kernel(table, {.op = "plait.AddAdapters",
                     .dtypes = "f32 x f32|bf16|f16",
                     .accepts = accepts_adapters,
                     .scratch_bytes = adapter_scratch,
                     .run = run_adapters,
                     .in_place = 0});
}

}  // namespace plait::cuda
