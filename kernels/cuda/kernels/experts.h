#pragma once
// Launches of experts.cu.
#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

/// Weights of all experts as they are, [e, n, k], or in blocks [e, n, blocks, block] with a scale and a zero point each.
struct ExpertStack {
  const void* weights;  ///< null: there are none
  const void* bias;     ///< [e, n]; null: none
  const void *scales, *zeros;
  float zero;  ///< without `zeros`
  Element bias_element, scale_element;
  int32_t zero_type;  ///< an Element, or one of those below
  int32_t n, k;
  int32_t row, block;  ///< elements of a row, with what pads its last block, and of a block
  int32_t sign;        ///< of codes: the bit that is negative; 0: none
  int32_t eights;      ///< whether rows and blocks are multiples of 8 elements
};
enum ZeroType : int32_t { zero_u8 = 3, zero_i8 = 4 };

/// hidden [tokens k, f] = gate(x gate^T) (x up^T) of each choice; y [tokens, o] = the sum of shares of hidden down^T.
struct ExpertsOperands {
  const float *x, *shares;
  float *hidden, *y;
  Indices numbers;  ///< [tokens, k]
  FaultReport report;
  ExpertStack gate, up, down;
  int64_t tokens, choices;         ///< k
  int64_t experts, offset, whole;  ///< of this rank, its first, and of all; 0: those of this rank
  float alpha, beta, limit;
  Gate activation;
};

constexpr int expert_warps = 8, expert_threads = expert_warps * lanes;

/// A warp a row of an expert.
inline Geometry experts_geometry(int64_t rows, int64_t choices) {
  return {static_cast<unsigned>(ceil_div(rows, expert_warps)), static_cast<unsigned>(choices), 1, expert_threads};
}

}  // namespace plait::cuda
