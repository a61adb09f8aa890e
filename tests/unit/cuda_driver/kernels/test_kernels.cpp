// Kernels of the emulated driver's tests: whole grids as host functions.
#include <cstdint>
#include <stdexcept>

#include "kernels/cuda/fault_word.h"
#include "kernels/emulated/kernel_registry.h"

namespace plait::emulated {
namespace {

template <class T>
T parameter(void* const* parameters, size_t index) {
  return *static_cast<const T*>(parameters[index]);
}

/// y[i] = a x[i] + b
constexpr size_t scale_parameters[] = {8, 8, 4, 4, 4};
void scale(const Launch&, void* const* given) {
  const auto* x = parameter<const float*>(given, 0);
  auto* y = parameter<float*>(given, 1);
  const auto a = parameter<float>(given, 2), b = parameter<float>(given, 3);
  for (int i = 0; i < parameter<int>(given, 4); ++i) y[i] = a * x[i] + b;
}

/// y[i] = table[index[i]], of a table of `rows` floats
constexpr size_t gather_parameters[] = {8, 8, 8, 4, 4, 8, 4};
void gather(const Launch&, void* const* given) {
  const auto* table = parameter<const float*>(given, 0);
  const auto* index = parameter<const int64_t*>(given, 1);
  auto* y = parameter<float*>(given, 2);
  const auto rows = parameter<int>(given, 3), count = parameter<int>(given, 4);
  auto* word = parameter<cuda::FaultWord*>(given, 5);
  for (int i = 0; i < count; ++i) {
    const bool good = index[i] >= 0 && index[i] < rows;
    y[i] = good ? table[index[i]] : 0;
    if (!good && !word->code) *word = {1, 1, index[i], parameter<int>(given, 6), 0};
  }
}

/// Has the fault of a kernel that the emulation notices.
constexpr size_t broken_parameters[] = {8};
void broken(const Launch&, void* const*) { throw std::runtime_error("broken: 5 threads wait at line 7 forever"); }

/// Where kernels() finds them, with those of kernels/cuda/kernels.
__attribute__((section("plait_kernels"), used)) constexpr KernelEntry entries[] = {
    {"scale", scale_parameters, scale}, {"gather", gather_parameters, gather}, {"broken", broken_parameters, broken}};

}  // namespace

}  // namespace plait::emulated
