#pragma once
// Where a thread's element is in its operands.
#include "kernels/cuda/kernels/device.h"
#include "kernels/cuda/kernels/elementwise.h"

namespace plait::cuda {

PLAIT_DEVICE int64_t element_of_thread() { return static_cast<int64_t>(blockIdx.x) * map_threads + threadIdx.x; }

struct Offsets {
  int64_t of[2];
};
/// Where element i of a nest is in both operands. Index: 32 bits where they suffice, whose division is ten times faster.
template <class Index>
PLAIT_DEVICE Offsets offsets_of(const Nest& nest, Index i) {
  Offsets out{{0, 0}};
#pragma unroll
  for (int dim = most_dims - 1; dim >= 0; --dim) {
    if (dim >= nest.rank) continue;
    const Index size = static_cast<Index>(nest.sizes[dim]), next = i / size, at = i - next * size;
    out.of[0] += static_cast<int64_t>(at) * nest.steps[0][dim],
        out.of[1] += static_cast<int64_t>(at) * nest.steps[1][dim];
    i = next;
  }
  return out;
}
PLAIT_DEVICE Offsets offsets(const Nest& nest, int64_t i) {
  return nest.count >> 31 ? offsets_of(nest, static_cast<uint64_t>(i)) : offsets_of(nest, static_cast<uint32_t>(i));
}

}  // namespace plait::cuda
