#pragma once
// A device of the emulated driver, and kernels for it.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/cuda/cuda_queue.h"
#include "tests/unit/support/emulated_device.h"

namespace plait::test {

using Use = Device::Use;

/// Message and hint of the Error that the call throws; "" without one.
inline std::string error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message() + " | " + error.hint();
  }
  return "";
}

struct ScaleState : KernelState {
  float factor = 1, added = 0;
};

struct OnDevice : testing::Test {
  std::shared_ptr<Device> device = cuda::make_cuda_device(emulated_libraries(), 0);
  Queue& compute = device->queue(Use::compute);
  ThreadPool pool{1};
  ScaleState state;

  Tensor floats(const std::vector<float>& values) {
    return device->upload(Tensor::of<float>(DType::f32, {static_cast<int64_t>(values.size())}, values));
  }
  std::vector<float> values(const Tensor& array) {
    const Tensor host = device->fetch(array);
    return {host.view().as<float>(), host.view().as<float>() + host.view().elements()};
  }

  /// y = factor x + added; `launch` takes both from here.
  Kernel scale(float factor, float added) {
    state.factor = factor, state.added = added;
    Kernel out;
    out.op = "Scale";
    out.device = DeviceKind::cuda;
    out.run = [](const KernelCall& call) {
      const auto& own = static_cast<const ScaleState&>(*call.state);
      return cuda::CudaQueue::of(call).launch("scale", {}, {32}, 0, call.inputs[0].data, call.outputs[0].data,
                                              own.factor, own.added, static_cast<int>(call.inputs[0].elements()));
    };
    return out;
  }
  /// y = table[index], with a fault for an index that is out of range.
  static Kernel gather() {
    Kernel out;
    out.op = "Gather";
    out.device = DeviceKind::cuda;
    out.run = [](const KernelCall& call) {
      cuda::CudaQueue& queue = cuda::CudaQueue::of(call);
      return queue.launch("gather", {}, {32}, 0, call.inputs[0].data, call.inputs[1].data, call.outputs[0].data,
                          static_cast<int>(call.inputs[0].elements()), static_cast<int>(call.inputs[1].elements()),
                          queue.fault_word(), call.instruction);
    };
    return out;
  }

  void launch(Queue& queue, const Kernel& kernel, std::vector<TensorView> inputs, std::vector<TensorView> outputs,
              Fault* fault = nullptr, int32_t instruction = 0) {
    device->launch(queue, kernel, {&state, inputs, outputs, pool, {}, &queue, fault, instruction});
  }
};

}  // namespace plait::test
