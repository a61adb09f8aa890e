// plait.Sample.
#include "kernels/cuda/kernels/sample.h"

#include "kernels/cuda/launch/launch.h"

namespace plait::cuda {
namespace {

bool accepts_sample(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 && node.inputs[1].dtype == DType::i64 &&
         node.inputs[2].dtype == DType::i32;
}

KernelStatus run_sample(const KernelCall& call) {
  const TensorView &logits = call.inputs[0], &edits = call.inputs[2];
  const SampleOperands o{data_of<const float>(logits),
                         call.inputs[1].data,
                         data_of<const int32_t>(edits),
                         data_of<int32_t>(call.outputs[0]),
                         logits.shape[1],
                         logits.shape[2],
                         edits.shape[1]};
  return launch(call, "sample_tokens", sample_geometry(o, logits.shape[0]), o);
}

}  // namespace

void add_sampling(KernelTable& table) {
  add_kernel(table, {.op = "plait.Sample", .dtypes = "f32", .accepts = accepts_sample, .run = run_sample});
}

}  // namespace plait::cuda
