#pragma once
// Launches of peak.cu.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

constexpr int peak_threads = 256;
/// Independent sums of a warp, so that a product need not wait for the one before.
constexpr int peak_sums = 8;
/// Multiplications and additions of a product of a warp.
constexpr int64_t product_operations = 2 * 16 * 8 * 16;

inline Geometry peak_geometry(unsigned blocks) { return {blocks, 1, 1, peak_threads}; }
inline double peak_operations(unsigned blocks, int rounds) {
  return static_cast<double>(blocks) * (peak_threads / 32) * rounds * peak_sums * product_operations;
}

}  // namespace plait::cuda
