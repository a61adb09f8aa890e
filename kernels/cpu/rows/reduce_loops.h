#pragma once
// Per-target sums of f32.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

struct ReduceLoops {
  /// The sum of n elements, or of their squares, in an order that depends only on n.
  float (*total[2])(const float* x, int64_t n);
  /// y[i] += x[i], or its square.
  void (*add_to[2])(const float* x, float* y, int64_t n);
};

const ReduceLoops& reduce_loops(Isa isa);

}  // namespace plait::cpu
