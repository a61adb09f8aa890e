#pragma once
// Runs a kernel of kernels() by its name.
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/cuda/kernels/geometry.h"
#include "kernels/emulated/fibers.h"

namespace plait::test {

/// The kernel of that name; throws if there is none, or `parameters` have other sizes.
inline const emulated::KernelEntry& kernel_entry_of(const char* name, std::initializer_list<size_t> parameters) {
  for (const emulated::KernelEntry& one : emulated::kernels()) {
    if (std::strcmp(one.name, name) != 0) continue;
    if (!std::equal(parameters.begin(), parameters.end(), one.parameter_bytes.begin(), one.parameter_bytes.end()))
      throw std::logic_error(std::string(name) + ": other parameters");
    return one;
  }
  throw std::logic_error(std::string("no kernel ") + name);
}

/// Threads run in the order of `seed`; 0: ascending.
template <class... P>
void run_kernel(const char* name, const cuda::Geometry& geometry, uint64_t seed, const P&... parameters) {
  const emulated::KernelEntry& entry = kernel_entry_of(name, {sizeof(P)...});
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
  emulated::set_thread_order(seed);
  entry.run({{geometry.grid_x, geometry.grid_y, geometry.grid_z}, {geometry.threads, 1, 1}, geometry.shared_bytes},
            addresses);
}

}  // namespace plait::test
