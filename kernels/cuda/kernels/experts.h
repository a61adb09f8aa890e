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
  int32_t eights;      ///< an Eights
};
enum ZeroType : int32_t { zero_u8 = 3, zero_i8 = 4 };
/// Whether rows and blocks of weights are multiples of 8 elements, and whether k is one too, with x at multiples of 16 bytes.
enum Eights : int32_t { no_eights, padded_eights, whole_eights };

/// At most `expert_rows` choices of an expert, which read its weights once: so many from `first` of ExpertsOperands::order on.
struct ExpertTile {
  int32_t expert, first, count, unused;
};
constexpr int expert_rows = 8;

/// hidden [tokens k, f] = gate(x gate^T) (x up^T) of each choice; y [tokens, o] = the sum of shares of hidden down^T.
struct ExpertsOperands {
  const float *x, *shares;
  float *hidden, *y;
  float* parts;       ///< [tokens k, o]: hidden down^T; only of sorted choices, as what follows
  ExpertTile* tiles;  ///< by experts_sort, of every expert that has choices
  int32_t* order;     ///< [tokens k]: choices by their expert, without those of other ranks
  int32_t* tile_count;
  Indices numbers;  ///< [tokens, k]
  FaultReport report;
  ExpertStack gate, up, down;
  PeerRanks give;                  ///< y, to other ranks
  int64_t tokens, choices;         ///< k
  int64_t experts, offset, whole;  ///< of this rank, its first, and of all; 0: those of this rank
  float alpha, beta, limit;
  Gate activation;
};

constexpr int expert_warps = 8, expert_threads = expert_warps * lanes;

/// A warp a row of an expert, for one choice, or for a tile of them.
inline Geometry experts_geometry(int64_t rows, int64_t choices) {
  return {static_cast<unsigned>(ceil_div(rows, expert_warps)), static_cast<unsigned>(choices), 1, expert_threads};
}

/// Tiles that there are at most, of any choices.
inline int64_t most_expert_tiles(int64_t choices, int64_t experts) {
  const int64_t most = choices / expert_rows + experts;
  return choices < most ? choices : most;
}

/// experts_sort: one block, with two numbers of each expert in shared memory.
constexpr int expert_sort_threads = 512;
constexpr int64_t most_sorted_experts = 4096;
inline Geometry experts_sort_geometry(int64_t experts) {
  return {1, 1, 1, expert_sort_threads, static_cast<unsigned>(experts * 2 * 4)};
}
/// experts_join: a thread an element of y.
inline Geometry experts_join_geometry(int64_t columns, int64_t tokens) {
  return {static_cast<unsigned>(ceil_div(columns, expert_threads)), static_cast<unsigned>(tokens), 1, expert_threads};
}

}  // namespace plait::cuda
