#pragma once
// Names of what kernels take, for kernels and their launch code. Plain C++.
#include <stdint.h>

namespace plait::cuda {

/// The type of an array's elements, where a kernel takes more than one.
enum class Element : int32_t { f32, bf16, f16 };

// Structures that kernels take have no padding: it would have whatever bytes were there, and the emulated driver looks at every word for
// addresses that the kernel must not have.

/// An array of i64 (`wide`) or i32.
struct Indices {
  const void* data;
  int64_t wide;
};

/// Where a kernel reports faults of its data: a FaultWord, and the instruction to name.
struct FaultReport {
  void* word;
  int64_t instruction;
};

/// Grid and block of a launch, and its dynamic shared memory in bytes.
struct Geometry {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;
};

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace plait::cuda
