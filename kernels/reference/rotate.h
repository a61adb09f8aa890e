#pragma once
// Rotary position embedding of one head (Su et al., "RoFormer").
#include <cstdint>
#include <vector>

namespace plait::reference {

/// Rotates the first 2 z elements of `x` in pairs by z angles; the rest is unchanged. Pairs are (i, z + i), or with
/// `interleaved` (2i, 2i + 1): (a, b) -> (a cos - b sin, b cos + a sin).
inline void rotate(double* x, const double* cos, const double* sin, int64_t z, bool interleaved) {
  for (int64_t i = 0; i < z; ++i) {
    double& a = x[interleaved ? 2 * i : i];
    double& b = x[interleaved ? 2 * i + 1 : z + i];
    double first = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = first;
  }
}

}  // namespace plait::reference
