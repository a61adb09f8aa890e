#pragma once
// Per-target loops over rows of images of f32.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

struct WindowLoops {
  /// y[i] += weight * x[i step], i < n.
  void (*add_scaled)(const float* x, int64_t step, float weight, float* y, int64_t n);
  /// y[i] = the greater of y[i] and x[i step]; NaN if one is.
  void (*greater)(const float* x, int64_t step, float* y, int64_t n);
};

const WindowLoops& window_loops(Isa isa);

}  // namespace plait::cpu
