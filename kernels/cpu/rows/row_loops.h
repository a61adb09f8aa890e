#pragma once
// Per-target loops over one row of f32. A row's bits depend only on its own elements and length.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

struct RowLoops {
  /// y = x / sqrt(mean(x^2) + epsilon) * scale, n elements; returns 1 / sqrt(...). y may be x.
  float (*rms_norm)(const float* x, const float* scale, float epsilon, float* y, int64_t n);
  /// y = (x - mean) / sqrt(variance + epsilon) * scale + bias (bias may be null); returns the inverse deviation and
  /// sets `mean`. y may be x.
  float (*layer_norm)(const float* x, const float* scale, const float* bias, float epsilon, float* y, int64_t n,
                      float& mean);
  /// y = exp(x - max x) / sum. y may be x.
  void (*softmax)(const float* x, float* y, int64_t n);
  /// Rotates pairs (i, z + i), or (2i, 2i + 1) when interleaved, of the first 2 z of d elements and copies the rest.
  void (*rope)(const float* x, const float* cos, const float* sin, float* y, int64_t d, int64_t z, bool interleaved);
};

const RowLoops& row_loops(Isa isa);

}  // namespace plait::cpu
