// Linked instead of core/exec/default_device.cpp and default_kernels.cpp: every Store of the program is on an emulated CUDA device,
// each on the next one, with the kernels for it.
#include <atomic>

#include "kernels/cuda/launch/register.h"
#include "tests/unit/support/default_kernels.h"
#include "tests/unit/support/emulated_device.h"

namespace plait {

std::shared_ptr<Device> default_device() {
  // Without NCCL, whose sums need not have the bits that these tests compare.
  static const auto libraries = [] {
    auto out = std::make_shared<cuda::CudaLibraries>(*test::emulated_libraries());
    out->nccl.reset();
    return out;
  }();
  static std::atomic<int> next{0};
  int count = 0;
  libraries->driver.call(libraries->driver.device_count, &count);
  return cuda::make_cuda_device(libraries, next++ % count);
}

DeviceKind test::add_default_kernels(KernelTable& table) {
  register_cuda_kernels(table);
  return DeviceKind::cuda;
}

}  // namespace plait
