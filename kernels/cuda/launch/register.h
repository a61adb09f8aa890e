#pragma once
// Kernels for CUDA devices: what launches those of kernels/cuda/kernels.
#include "core/exec/kernel.h"

namespace plait {

/// Adds all kernels for DeviceKind::cuda. They do not depend on which devices there are, nor on a plug-in.
void register_cuda_kernels(KernelTable& table);

}  // namespace plait
