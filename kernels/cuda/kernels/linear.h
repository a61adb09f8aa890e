#pragma once
// Launches of linear.cu, and the layout of weights for tensor cores.
//
// Weights are rows of an mma's 16 x 16 operand and tokens the 8 columns, so one instruction serves 1 to 8 tokens. A strip
// is 16 rows, a unit 32 along k, which is two mma ("halves"). A lane reads its registers with loads of 16 bytes:
//
//   16 bits  [strip][unit][half][lane][register][2]
//   8 bits   [strip][unit][lane][half][register / 2][byte]; registers 2 q, 2 q + 1 are bytes 0, 2 and 1, 3
//   4 bits   [strip][unit / 2][lane][unit % 2][half], words of 8 codes; register r is bits 4 r and 16 + 4 r
//
// Blocks of 8 and 4 bits are padded to 1, 2, 4 ... units. k within a unit is permuted, so that a lane's part of x, of
// column g = lane / 4, is the 8 elements from 8 (lane % 4) on. Rows and k are padded with zeros.
#include "kernels/cuda/kernels/geometry.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

constexpr int strip_rows = 16, unit_k = 32, lanes = 32;
constexpr int linear_warps = 8, linear_threads = linear_warps * lanes;
/// Units that a warp loads at a time; tokens of an mma, and how many tiles of these a block has if there are more (of quantised
/// weights: fewer, for want of registers).
constexpr int chunk_units = 8, tile_tokens = 8, many_tiles = 4, many_block_tiles = 2;

/// Row in a strip and k in a unit of element `e` of a lane's register `r`, of a half.
constexpr int row_of(int lane, int r) { return lane / 4 + r % 2 * 8; }
constexpr int k_of(int lane, int half, int r, int e) { return lane % 4 * 8 + half * 4 + r / 2 * 2 + e; }

enum class Gate : int32_t { none, silu, gelu, gelu_tanh, relu, identity };

/// x in the order in which lanes multiply it: [tile of 8 tokens][unit][part][lane] of 16 bytes. The parts add up to x: two numbers of
/// 16 bits are as exact as f32 in all but the last bits.
struct ColumnOperands {
  const float* x;
  void* columns;
  float* column_sums;  ///< [tile][unit][8]: of what the columns hold; null: not needed
  int32_t k, tokens, tiles, units;
  int32_t block, block_shift;  ///< of quantised weights: elements of a block, which has 2^block_shift units
};

/// y [tokens, n] = x [tokens, k] w^T, then + bias, + added, and gate(gated) times it, as far as they are there.
struct LinearOperands {
  const void* weights;  ///< packed, or plain rows for linear_plain_*
  const void *scales,
      *zeros;  ///< quantised weights: float [strip][block][8][2], of rows g and g + 8; zeros may be null
  const void* columns;
  const float *column_sums, *x;  ///< quantised weights; plain weights, which have no columns
  float* y;
  const void* bias;
  const float *added, *gated;  ///< [tokens, n]
  PeerRanks give;              ///< y, to other ranks
  float zero;                  ///< of blocks without `zeros`, an integer in [-128, 256]
  Element bias_element;
  Gate gate;
  int32_t n, k, tokens;
  int32_t units, blocks, block_shift;  ///< of a row; a block has 2^block_shift units
  int32_t unused;                      ///< there is no padding
};

constexpr int column_warps = 8, column_threads = column_warps * lanes;
constexpr int64_t column_bytes = lanes * 16;  ///< of a tile, unit and part

inline int64_t units_of(int64_t k) { return ceil_div(k, unit_k); }
inline int32_t block_shift_of(int64_t length) {
  int32_t shift = 0;
  while (unit_k << shift < length) ++shift;
  return shift;
}
/// Whether a block has many tokens, and how many tiles there are then.
inline bool has_many(int64_t tokens) { return tokens > tile_tokens; }
inline int64_t tiles_of(int64_t tokens) {
  return has_many(tokens) ? ceil_div(tokens, tile_tokens * many_tiles) * many_tiles : 1;
}

inline Geometry column_geometry(int64_t units, int64_t tokens) {
  return {static_cast<unsigned>(ceil_div(tiles_of(tokens) * units, column_warps)), 1, 1, column_threads};
}
inline Geometry linear_geometry(int64_t n, int64_t tokens, bool quantised) {
  const int64_t tile = tile_tokens * (!has_many(tokens) ? 1 : quantised ? many_block_tiles : many_tiles);
  return {static_cast<unsigned>(ceil_div(n, strip_rows)), static_cast<unsigned>(ceil_div(tokens, tile)), 1,
          linear_threads};
}
/// A warp a row of weights.
inline Geometry linear_plain_geometry(int64_t n, int64_t tokens) {
  return {static_cast<unsigned>(ceil_div(n, linear_warps)), static_cast<unsigned>(ceil_div(tokens, tile_tokens)), 1,
          linear_threads};
}

}  // namespace plait::cuda
