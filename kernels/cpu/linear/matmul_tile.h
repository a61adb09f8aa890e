#pragma once
// Per-target code of MatMul and Gemm with a right side whose columns are contiguous.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// y[i, j] = sum over k of a[i, k] b[k, j], i < m, j < n: k ascending by fma, for any m and n. Empty operands may be
/// null.
struct MatmulBlock {
  const float* a;
  int64_t lda, m;
  const float* b;
  int64_t ldb, n, k;
  float* y;
  int64_t ldy;
  float* panel;       ///< scratch: matmul_panel floats
  bool adds = false;  ///< to what y holds
};

constexpr int64_t matmul_columns = 64;  ///< the n of a block is at most this
constexpr int64_t matmul_depth = 512;   ///< k a panel: 512 x 64 floats are 128 KB, a share of L2
constexpr int64_t matmul_panel = matmul_columns * matmul_depth;

struct MatmulTiles {
  void (*block)(const MatmulBlock& block);
};

const MatmulTiles& matmul_tiles(Isa isa);

/// The same of any n.
inline void multiply(Isa isa, MatmulBlock whole) {
  MatmulBlock block = whole;
  for (int64_t j = 0; j < whole.n; j += matmul_columns) {
    block.b = whole.b + j;
    block.y = whole.y + j;
    block.n = whole.n - j < matmul_columns ? whole.n - j : matmul_columns;
    matmul_tiles(isa).block(block);
  }
}

}  // namespace plait::cpu
