#pragma once
// Per-target code of the linear kernels for few rows of x: dot products with rows of w. See packed_tile.h for many
// rows.
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// y[i, j] = sum over k of x[i, k] w[j, k], for i < m and j < n. All pointers may have any alignment.
///
/// The order of operations for one y[i, j] is fixed: lane c of a vector of L lanes (8 for AVX2, 16 for AVX-512) takes
/// k = c, c + L, ... in ascending order by fma, and one fixed tree adds the lanes. It depends only on k, never on m,
/// n, or the place of i and j in a tile: so a row has the same bits in any batch.
struct LinearBlock {
  const float* x;  ///< row i at x + i * ldx
  int64_t ldx;
  int64_t m;
  const uint8_t* w;  ///< rows of k elements, contiguous
  DType dtype;       ///< of w: f32, bf16 or f16
  int64_t n;
  int64_t k;
  float* y;  ///< row i at y + i * ldy
  int64_t ldy;
};

struct LinearTiles {
  void (*block)(const LinearBlock& block);
};

const LinearTiles& linear_tiles(Isa isa);

}  // namespace plait::cpu
