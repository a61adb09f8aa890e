#pragma once
// Launches of rope.cu.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

constexpr int rope_threads = 128;

/// x [tokens, heads, d], cos and sin [tokens, z]: pairs of the first 2 z elements of a head are rotated.
struct RopeOperands {
  const float *x, *cos, *sin;
  float* y;
  int32_t heads, d, z;
  int32_t interleaved;  ///< pairs are elements 2 i, 2 i + 1; otherwise i, i + z
};
/// A block a token.
inline Geometry rope_geometry(int64_t tokens) { return {static_cast<unsigned>(tokens), 1, 1, rope_threads}; }

}  // namespace plait::cuda
