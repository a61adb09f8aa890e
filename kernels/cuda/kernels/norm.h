#pragma once
// Launches of norm.cu.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

constexpr int norm_threads = 256;

/// A block a row.
inline Geometry norm_geometry(int64_t rows) { return {static_cast<unsigned>(rows), 1, 1, norm_threads}; }

/// y = exp(x - max) / sum, of rows of `width`.
struct SoftmaxOperands {
  const float* x;
  float* y;
  int64_t width;
};

/// A row that all rows are scaled by, or shifted.
struct NormRow {
  const void* data;  ///< null: there is no such row
  Element element;
  int32_t stride;  ///< 1; 0: one element for the whole row
};

/// Operands of a norm of rows.
struct NormOperands {
  NormRow scale, bias;
  const float* added;     ///< [added_rows, width], repeated over x; null: nothing is added to x
  float *sum,             ///< [rows, width], x + added; null: not needed
      *means, *inverses;  ///< [rows]; null: not needed
  int64_t added_rows;
  int32_t width;
  float epsilon;
};

}  // namespace plait::cuda
