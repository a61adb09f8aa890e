#pragma once
// A CUDA device as the executor sees it.
#include <memory>
#include <string>
#include <vector>

#include "core/exec/device.h"
#include "kernels/cuda/cuda_libraries.h"

namespace plait::cuda {

/// Device `ordinal` of the driver. Kernels for cuda are launched; those of the host run as islands: their operands are copied to the
/// host, their results back, and the launch waits for it. Throws Error(unsupported) if there is no such device.
/// Errors of the driver are Error(io) with the function's name; out_of_memory as in Device::take. After an error that ends the
/// context, every call throws it, except for destructors.
std::shared_ptr<Device> make_cuda_device(std::shared_ptr<const CudaLibraries> libraries, int ordinal);

/// A device as the driver describes it.
struct CudaDeviceFacts {
  int ordinal = 0;
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int64_t bytes = 0;  ///< of its memory
};
/// All devices of the driver. Throws Error(io) of a function that fails.
std::vector<CudaDeviceFacts> cuda_devices(const CudaDriver& driver);

}  // namespace plait::cuda
