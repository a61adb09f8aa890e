#pragma once
// Launches of moves.cu.
#include "kernels/cuda/kernels/geometry.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

constexpr int move_threads = 128;

/// Rows of a table [v, h] by ids: y [ids, h]. The table is that of a Linear (linear.h), or plain rows.
struct EmbeddingOperands {
  const void* table;
  const void *scales, *zeros;  ///< quantised tables, packed
  float* y;
  Indices ids;
  FaultReport report;
  int64_t rows, offset, whole;  ///< rows that this rank has, from which on, of how many; another rank's are 0
  PeerRanks give;               ///< y, to other ranks
  float zero;
  int32_t h, units;
  int32_t blocks, block, block_shift;
};
/// A block an id.
inline Geometry embedding_geometry(int64_t ids) { return {static_cast<unsigned>(ids), 1, 1, move_threads}; }

/// x [b, s, inner], rows [b, n] -> y [b, n, inner], in words of 1 or 4 bytes.
struct GatherOperands {
  const void* x;
  void* y;
  Indices rows;
  FaultReport report;
  int64_t s, n, inner;  ///< inner: in words
  int64_t shared;       ///< whether rows are [n], for each b; they may then count from the end
};
inline Geometry gather_geometry(int64_t rows) { return {static_cast<unsigned>(rows), 1, 1, move_threads}; }

/// keys [p, g, d, c] and values [p, g, c, e] at slots [tokens], of k [tokens, g, d] and v [tokens, g, e].
struct KvWriteOperands {
  void *keys, *values;
  const float *k, *v;
  Indices slots;
  FaultReport report;
  int64_t pages;
  int32_t g, d, c, e;
};
inline Geometry kv_write_geometry(int64_t tokens, int64_t g) {
  return {static_cast<unsigned>(tokens), static_cast<unsigned>(g), 1, move_threads};
}

/// Of 2 bytes each.
inline Geometry copy_geometry(int64_t halves) {
  return {static_cast<unsigned>(ceil_div(halves, move_threads)), 1, 1, move_threads};
}

}  // namespace plait::cuda
