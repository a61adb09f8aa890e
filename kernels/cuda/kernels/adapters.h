#pragma once
// Launches of adapters.cu.
#include "kernels/cuda/kernels/reduce.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

/// y [tokens, n] = added to by (x [tokens, k] a^T) b^T, of the token's adapter; -1: none.
struct AdapterOperands {
  const float *x, *added;
  const void *a, *b;  ///< [adapters, r, k], [adapters, n, r]
  float *low, *y;     ///< low [tokens, r]: x a^T
  Indices adapters;   ///< [tokens]
  FaultReport report;
  int64_t tokens, count;  ///< `count`: adapters
  PeerRanks give;         ///< y, to other ranks
  int32_t n, k, r;
  Element element;
};

}  // namespace plait::cuda
