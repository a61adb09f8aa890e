#pragma once
// Packed products distributed over a pool.
#include <algorithm>

#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// y [m, n] (+)= a [m, k] b [k, n], with an optional addend.
struct Gemm {
  GemmLeft a;
  GemmRight b;
  int64_t m, n, k;
  float* y;
  int64_t ldy;
  bool adds = false;
  const float* addend = nullptr;            ///< [m, n], in y's layout: added to each finished sum, by `loops`
  const ElementwiseLoops* loops = nullptr;  ///< if there is an addend
};

/// Columns of an item, and its part of k: 64 x 2048 floats of b are 512 KB, half of L2. The rows of a that are packed
/// at once bound the scratch: 16 MB.
constexpr int64_t gemm_columns = 64, gemm_depth = 2048, gemm_rows = 2048;

/// Minimum rows for which packing pays off.
constexpr int64_t gemm_from_rows = 28;

struct GemmWorkspace {
  GemmWorkspace(const GemmTiles& tiles, int64_t m, int64_t k)
      : left(align(tiles.left_bytes(std::min(m, gemm_rows), std::min(k, gemm_depth)))),
        right(align(tiles.right_bytes(gemm_columns, std::min(k, gemm_depth)))) {}
  int64_t bytes(int threads) const { return left + right * threads; }
  int64_t left, right;
};

/// Adds the addend to finished rows [i, i + m) and columns [j, j + n) of y, while they are in cache.
inline void add_addend(const Gemm& g, int64_t i, int64_t m, int64_t j, int64_t n) {
  const auto add = g.loops->binary[static_cast<int>(Binary::add)];
  for (int64_t at = i * g.ldy + j; m > 0; --m, at += g.ldy) add(g.y + at, 1, g.addend + at, 1, g.y + at, n);
}

/// Scratch: GemmWorkspace's bytes, 64-byte aligned. An element's order of summation depends only on k.
inline void run_gemm(ThreadPool& pool, const GemmTiles& tiles, const Gemm& g, std::byte* scratch) {
  const GemmWorkspace workspace(tiles, g.m, g.k);
  const int64_t across = (g.n + gemm_columns - 1) / gemm_columns;
  for (int64_t i0 = 0; i0 < g.m; i0 += gemm_rows)
    for (int64_t k0 = 0; k0 == 0 || k0 < g.k; k0 += gemm_depth) {
      const int64_t m = std::min(gemm_rows, g.m - i0), k = std::min(gemm_depth, g.k - k0);
      const int64_t tall = tiles.pack_rows ? equal_rows(m, tiles.rows) : tiles.rows;
      const int64_t row_tiles = (m + tall - 1) / tall, stride = tiles.left_bytes(1, k);
      share(pool, row_tiles, m * k, [&](int64_t tile, int) {
        tiles.pack_left(g.a.from(i0 + tile * tall, k0), std::min(tall, m - tile * tall), k, scratch + tile * stride);
      });
      // Few columns: also splits rows, into parts that amortise packing b again.
      const int64_t wanted = (4 * pool.size() + across - 1) / std::max<int64_t>(across, 1);
      const int64_t parts = std::max<int64_t>(1, std::min(wanted, row_tiles / 8));
      share(pool, across * parts, m * g.n * k, [&](int64_t item, int worker) {
        const int64_t j = item % across * gemm_columns, n = std::min(gemm_columns, g.n - j);
        const int64_t first = row_tiles * (item / across) / parts, last = row_tiles * (item / across + 1) / parts;
        std::byte* right = scratch + workspace.left + worker * workspace.right;
        tiles.pack_right(g.b.from(k0, j), n, k, right);
        // With an addend by strips that stay in L1: 128 rows of 64 floats are 32 KB.
        const bool ends = g.addend && k0 + k >= g.k;
        const int64_t strip = ends ? std::max<int64_t>(128 / tiles.rows, 1) : row_tiles;
        for (int64_t tile = first; tile < last; tile += strip) {
          const int64_t i = tile * tall, count = std::min(m, std::min(tile + strip, last) * tall) - i;
          tiles.block(
              {scratch + tile * stride, right, count, n, k, g.y + (i0 + i) * g.ldy + j, g.ldy, g.adds || k0 > 0, tall});
          if (ends) add_addend(g, i0 + i, count, j, n);
        }
      });
    }
}

}  // namespace plait::cpu
