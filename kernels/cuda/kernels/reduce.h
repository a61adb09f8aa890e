#pragma once
// Launches of reduce.cu.
#include "kernels/cuda/kernels/elementwise.h"

namespace plait::cuda {

constexpr int reduce_warps = 8, reduce_threads = reduce_warps * 32;

enum class Reduction : int32_t { sum, mean, maximum, minimum };

/// y: an element for each place in the dims of x that are kept.
struct ReduceOperands {
  const float* x;
  float* y;
  Indices axes;  ///< null: all, or none
  FaultReport report;
  int64_t entries, rank, count;  ///< of axes, x, y
  int64_t sizes[most_dims];
  float factor;  ///< of a mean: what its number of elements is divided by as well
  Reduction reduction;
  int64_t without_axes;  ///< without axes, whether all dims are reduced
};

/// The k first of each row of x, in descending order, or ascending; of equal ones the first.
struct TopKOperands {
  const float* x;
  float* values;     ///< [rows, k]; null: not needed
  int64_t* indices;  ///< [rows, k]; null: not needed
  int64_t rows, width, k, largest;
};

/// A warp an element, or a row.
inline Geometry warp_geometry(int64_t count) {
  return {static_cast<unsigned>(ceil_div(count, reduce_warps)), 1, 1, reduce_threads};
}

}  // namespace plait::cuda
