#pragma once
// The kernels of kernels/cuda as the host's compiler builds them, found by name as the driver finds them in a module.
#include <cstddef>
#include <span>
namespace plait::emulated {
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
/// Grid and block of a launch; dynamic shared memory in bytes.
struct Launch {
  Dim3 grid, block;
  unsigned shared_bytes = 0;
};
struct KernelEntry {
  const char* name;                         ///< the extern "C" name
  std::span<const size_t> parameter_bytes;  ///< size of each parameter, in order
  /// Runs the whole grid; `parameters` as cuLaunchKernel's kernelParams. Throws std::runtime_error with the kernel's name for a
  /// fault of the kernel (meeting not reached by all, deadlock, shared memory out of range, ...).
  void (*run)(const Launch& launch, void* const* parameters);
};
/// All kernels, in no particular order. Any thread.
std::span<const KernelEntry> kernels();
}  // namespace plait::emulated
