// Linked instead of core/exec/default_device.cpp: every Store of the program is on an emulated CUDA device, each on the next one.
#include <atomic>

#include "tests/unit/support/emulated_device.h"

namespace plait {

std::shared_ptr<Device> default_device() {
  static std::atomic<int> next{0};
  const auto libraries = test::emulated_libraries();
  int count = 0;
  libraries->driver.call(libraries->driver.device_count, &count);
  return cuda::make_cuda_device(libraries, next++ % count);
}

}  // namespace plait
