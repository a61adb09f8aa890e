#include "kernels/emulated/kernel_list.h"

// Where the linker puts the entries of all files together, and where they end.
extern "C" {
__attribute__((visibility("hidden"), weak)) extern const plait::emulated::KernelEntry __start_plait_kernels[];
__attribute__((visibility("hidden"), weak)) extern const plait::emulated::KernelEntry __stop_plait_kernels[];
}

namespace plait::emulated {

std::span<const KernelEntry> kernels() {
  return {__start_plait_kernels, static_cast<size_t>(__stop_plait_kernels - __start_plait_kernels)};
}

}  // namespace plait::emulated
