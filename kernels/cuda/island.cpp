#include "kernels/cuda/island.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::cuda {

HostOperands::HostOperands(Device& device, Queue& queue, std::span<const TensorView> inputs) {
  for (const TensorView& input : inputs) {
    TensorView& view = views_.emplace_back(input);
    if (!input.data) continue;
    memory_.push_back(make_blob(input.bytes()));
    view.data = memory_.back()->mutable_data();
    device.read(queue, view.data, input.data, input.bytes());
  }
}

void run_island(Device& device, Queue& queue, const Kernel& kernel, const KernelCall& call) {
  if (kernel.pack)
    throw Error(Code::internal,
                cat("the host kernel of ", kernel.op, " takes packed operands, which are of unknown size"));
  const HostOperands inputs(device, queue, call.inputs);
  std::vector<TensorView> outputs(call.outputs.begin(), call.outputs.end());
  std::vector<std::shared_ptr<Blob>> memory;
  for (TensorView& output : outputs) {
    if (!output.data) continue;
    // An output in place of an input stays in place.
    const auto same = std::find_if(call.inputs.begin(), call.inputs.end(), [&](const TensorView& input) {
      return input.data == output.data && input.bytes() == output.bytes();
    });
    if (same != call.inputs.end()) {
      output.data = inputs.views()[static_cast<size_t>(same - call.inputs.begin())].data;
    } else {
      memory.push_back(make_blob(output.bytes()));
      output.data = memory.back()->mutable_data();
    }
  }
  const std::shared_ptr<Blob> scratch = make_blob(static_cast<int64_t>(call.scratch.size()));
  KernelCall here{call.state, inputs.views(), outputs,          call.pool,    {},
                  nullptr,    call.fault,     call.instruction, call.strings, call.iteration};
  if (!call.scratch.empty()) here.scratch = {scratch->mutable_data(), call.scratch.size()};
  const KernelStatus status = kernel.run(here);
  if (status.code != KernelCode::ok && call.fault && !call.fault->found()) *call.fault = {status, call.instruction};
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].data) device.write(queue, call.outputs[i].data, outputs[i].data, outputs[i].bytes());
}

}  // namespace plait::cuda
