#pragma once
// CUDA devices of the emulated driver, with the kernels of tests/unit/cuda_driver/kernels.
#include "kernels/cuda/cuda_device.h"
#include "kernels/emulated/driver_control.h"

namespace plait::test {

/// Loaded once. The environment of the process has the number and size of its devices (kernels/emulated/driver_machine.h).
std::shared_ptr<const cuda::CudaLibraries> emulated_libraries();
/// The emulated driver's own functions.
plait_emulated_counts emulated_counts();
/// Once the devices have done what they were given.
plait_emulated_counts settled_counts();
void emulated_fail(const char* text);
void emulated_seed(uint64_t seed);

}  // namespace plait::test
