#pragma once
// Launches of elementwise.cu.
#include "kernels/cuda/kernels/geometry.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

constexpr int map_threads = 256, most_dims = 8;

enum class MapFunction : int32_t {
  add,
  sub,
  mul,
  div,
  minimum,
  maximum,
  neg,
  abs,
  exp,
  log,
  sqrt,
  reciprocal,
  sin,
  cos,
  tanh,
  sigmoid,
  erf,
  gelu,
  gelu_tanh,
  silu,
  relu,
  identity
};

/// How operands of some shape are read to make a contiguous result: sizes, and steps of operands in elements (0: repeated).
struct Nest {
  int64_t count;  ///< elements of the result
  int64_t rank;
  int64_t sizes[most_dims];
  int64_t steps[2][most_dims];
};

/// y = f(a), or f(a, b). A block has map_threads elements.
struct MapOperands {
  const float *a, *b;
  float* y;
  Nest nest;
  PeerRanks give;  ///< y, to other ranks
  MapFunction function;
  int32_t same;  ///< whether operands are read as y is written
};

/// Elements of `bytes` each: y[by steps[1]] = x[by steps[0]].
struct CopyOperands {
  const void* x;
  void* y;
  Nest nest;
};

/// y = x[starts : ends : steps], of which the ends are in y's sizes.
struct SliceOperands {
  const void* x;
  void* y;
  Indices starts, axes, steps;  ///< axes: all in order if null; steps: 1 if null
  FaultReport report;
  int64_t count, rank, entries;
  int64_t sizes[most_dims], sizes_of_x[most_dims];
};

/// Types that a cast takes and makes.
enum class CastType : int32_t { f32, bf16, f16, i32, i64, boolean };
struct CastOperands {
  const void* x;
  void* y;
  int64_t count;
  CastType from, to;
};

/// y [batch, m, n] = a [batch, m, k] b [batch, k, n]; steps of batches, 0: the same for all. A thread an element.
struct MatMulOperands {
  const float *a, *b;
  float* y;
  int64_t count, a_step, b_step;
  int32_t m, n, k, unused;
};

inline Geometry map_geometry(int64_t count) {
  return {static_cast<unsigned>(ceil_div(count, map_threads)), 1, 1, map_threads};
}

}  // namespace plait::cuda
