#pragma once
// Host kernels on a device with memory of its own.
#include <memory>
#include <vector>

#include "core/exec/device.h"

namespace plait::cuda {

/// Host copies of a kernel's inputs.
class HostOperands {
 public:
  /// Waits until the queue's work is done.
  HostOperands(Device& device, Queue& queue, std::span<const TensorView> inputs);
  std::span<const TensorView> views() const { return views_; }

 private:
  std::vector<std::shared_ptr<Blob>> memory_;
  std::vector<TensorView> views_;
};

/// Runs a host kernel on copies of its operands, and copies the outputs back. Waits until the queue's work is done. A fault goes to
/// call.fault as in Device::launch.
void run_island(Device& device, Queue& queue, const Kernel& kernel, const KernelCall& call);

}  // namespace plait::cuda
