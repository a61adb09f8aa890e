#pragma once
// Makes the entries of kernels() from the kernels' definitions: they lie in a section of their own, which the linker puts together.
#include <cstddef>
#include <utility>

#include "kernels/emulated/fibers.h"

namespace plait::emulated {

template <auto kernel>
struct KernelSignature;
template <class... P, void (*kernel)(P...)>
struct KernelSignature<kernel> {
  static constexpr size_t parameter_bytes[] = {sizeof(P)...};

  static void call(void* const* parameters) { call_with(parameters, std::index_sequence_for<P...>()); }

 private:
  template <size_t... i>
  static void call_with(void* const* parameters, std::index_sequence<i...>) {
    kernel(*static_cast<const P*>(parameters[i])...);
  }
};

template <auto kernel, const char* name, unsigned most_threads>
constexpr KernelEntry kernel_entry() {
  return {
      name, KernelSignature<kernel>::parameter_bytes, [](const Launch& launch, void* const* parameters) {
        run_grid({name, most_threads}, launch, thread_order(), [&] { KernelSignature<kernel>::call(parameters); });
      }};
}

}  // namespace plait::emulated

#define PLAIT_LIST_KERNEL(kernel, threads)                                                                       \
  inline constexpr char kernel##_name[] = #kernel;                                                               \
  __attribute__((section("plait_kernels"), used)) static constexpr plait::emulated::KernelEntry kernel##_entry = \
      plait::emulated::kernel_entry<&kernel, kernel##_name, threads>();
