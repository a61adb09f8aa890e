// plait.RoPE.
#include "kernels/cuda/kernels/rope.h"

#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

struct RopeState : KernelState {
  bool interleaved = false;
};

bool accepts(const NodeInfo& node) {
  for (size_t i = 0; i < 3; ++i)
    if (node.inputs[i].dtype != DType::f32) return false;
  return true;
}

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<RopeState>();
  state->interleaved = node.attributes.integer("interleaved", 0) != 0;
  return state;
}

KernelStatus run(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &cos = call.inputs[1];
  if (!x.elements()) return {};
  const int64_t d = x.shape[3], z = cos.shape.back(1);
  if (2 * z > d) return {KernelCode::bad_value, 1, z};
  const RopeOperands operands{data_of<const float>(x),
                              data_of<const float>(cos),
                              data_of<const float>(call.inputs[2]),
                              data_of<float>(call.outputs[0]),
                              static_cast<int32_t>(x.shape[2]),
                              static_cast<int32_t>(d),
                              static_cast<int32_t>(z),
                              static_cast<const RopeState*>(call.state)->interleaved};
  return launch(call, "rope_f32", rope_geometry(x.shape[0] * x.shape[1]), operands);
}

}  // namespace

void add_rope(KernelTable& table) {
  add_kernel(
      table,
      {.op = "plait.RoPE", .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run, .in_place = 0});
}

}  // namespace plait::cuda
