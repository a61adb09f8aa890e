#pragma once
// Launches of indexing.cu. Where y is also x, a kernel changes it.
#include "kernels/cuda/kernels/elementwise.h"

namespace plait::cuda {

/// Element i of a nest is at steps[0] in the indexed array, along an axis that the index adds to.
struct ElementsOperands {
  const void* x;
  void* y;
  Indices indices;
  FaultReport report;
  Nest nest;
  int64_t size, pitch;  ///< of the axis
};

/// Tuples of indices into the leading `depth` dims of an array, and runs of `inner` words there; [batches, tuples].
struct TuplesOperands {
  const void* x;
  void* y;
  Indices indices;
  FaultReport report;
  int64_t batches, tuples, depth, inner, pitch;  ///< `pitch`: of a batch of the indexed array
  int64_t sizes[most_dims];
};

/// y = x, repeated along each dim.
struct TileOperands {
  const void* x;
  void* y;
  int64_t count, rank;
  int64_t sizes[most_dims], sizes_of_x[most_dims];
};

struct FillOperands {
  void* y;
  int64_t count;
  uint64_t bits;
};

}  // namespace plait::cuda
