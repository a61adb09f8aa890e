#pragma once
// The libraries behind CUDA devices: a plug-in with kernels, and the driver that it names.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/nccl.h"

namespace plait::cuda {

/// Immutable.
struct CudaLibraries {
  std::string plugin;  ///< its path
  CudaDriver driver;
  std::optional<Nccl> nccl;          ///< none: collectives that are not peer_sums.h's go through the host's memory
  bool nccl_of_one_process = false;  ///< it connects devices of one process only
  std::vector<const void*> images;   ///< the kernels
};

/// Loads a plug-in, which stays loaded, and its driver. Any thread. Throws Error(unsupported) without the
/// plug-in, for a file that is no plug-in, or one of another version, and what load_driver throws.
std::shared_ptr<const CudaLibraries> load_cuda(const std::string& plugin);

}  // namespace plait::cuda
