#pragma once
// Products with a right side that was packed when the model was loaded, whose left side is packed tile by tile from wherever its rows
// lie: MatMul by a weight, and convolutions, which gather pixels.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// y [m, n] = a [m, k] b [k, n] by blocks of k, and items of some tiles of rows and some panels of columns.
struct PackedPlan {
  /// Bytes of packed rows at once: half of L2, next to which panels of b pass through.
  static constexpr int64_t item_bytes = 512 << 10;
  static constexpr int64_t most_depth = 1024;

  PackedPlan(const GemmTiles& tiles, int64_t rows, int64_t columns, int64_t depth_of_all, int threads)
      : m(rows),
        n(columns),
        k(depth_of_all),
        tall(equal_rows(rows, tiles.rows)),
        depth(std::max<int64_t>(equal_rows(depth_of_all, most_depth), 1)),
        tile_bytes(tiles.left_bytes(1, depth)),
        panel_columns(tiles.columns),
        panels((columns + tiles.columns - 1) / tiles.columns) {
    const int64_t all = (m + tall - 1) / tall;
    tiles_at_once = std::clamp<int64_t>(item_bytes / std::max<int64_t>(tile_bytes, 1), 1, 32);
    tiles_at_once = std::min(tiles_at_once, std::max<int64_t>(1, all / (4 * threads)));
    // Few rows: whole panels of b are read by few items, so that each is read from memory once.
    if (all <= 8) tiles_at_once = std::max<int64_t>(all, 1);
    items = (all + tiles_at_once - 1) / tiles_at_once;
    // Columns are split too, though each part packs the rows again.
    parts = std::clamp<int64_t>(4 * threads / std::max<int64_t>(items, 1), 1, std::max<int64_t>(panels, 1));
  }
  int64_t worker_bytes() const {
    return align(tiles_at_once * tile_bytes) + align(tiles_at_once * tall * panel_columns * 4);
  }

  int64_t m, n, k;
  int64_t tall;   ///< rows of a tile
  int64_t depth;  ///< steps of k at once
  int64_t tile_bytes, panel_columns, panels;
  int64_t tiles_at_once = 1, items = 1, parts = 1;
};

/// The right side as `pack_right` packs all its columns, of which [begin, end) are made: y's columns of the same numbers.
struct PackedRight {
  const std::byte* weights;
  int64_t begin, end;
  float* y;
  int64_t ldy;
  /// The left side where its rows are `pitch` apart: then it is read as it is. Null: it is packed.
  const float* rows = nullptr;
  int64_t pitch = 0;
};

/// Whether rows that far apart are better read as they are: few steps, and no lines of L1 that all of them share.
inline bool reads_rows(int64_t pitch, int64_t k) { return k <= 1024 && pitch % 1024 != 0; }

/// Calls pack(first, count, k0, k1, to) for the tiles of rows [first, first + count), and finish(first, count, j0, j1, spare) once columns
/// [j0, j1) of rows [first, first + count) are complete; `spare` is what a worker's scratch has beyond the plan's bytes. An element's
/// order of summation depends only on k and its column.
template <class Pack, class Finish>
void run_packed(ThreadPool& pool, const GemmTiles& tiles, const PackedPlan& plan, const PackedRight& right,
                std::byte* scratch, int64_t worker_bytes, Pack pack, Finish finish) {
  const int64_t columns = plan.panel_columns, at_once = plan.tiles_at_once * plan.tall;
  const int64_t first_panel = right.begin / columns, panels = (right.end + columns - 1) / columns - first_panel;
  const int64_t parts = std::min(plan.parts, std::max<int64_t>(panels, 1));
  // So many steps of k at once that an item ends soon enough once the run is cancelled.
  const int64_t at_a_time = 64 * plan.depth;
  for (int64_t from = 0; from == 0 || from < plan.k; from += at_a_time)
    // 16 multiplications are a step: what takes less than 20 us is not worth waking others, who may not get a processor soon.
    share(pool, plan.items * parts, plan.m * (right.end - right.begin) * plan.k / 16, [&](int64_t item, int worker) {
      const int64_t until = std::min(plan.k, from + at_a_time);
      std::byte* left = scratch + worker * worker_bytes;
      std::byte* spare = left + plan.worker_bytes();
      auto* part_of_panel = reinterpret_cast<float*>(left + align(plan.tiles_at_once * plan.tile_bytes));
      const int64_t first = item / parts * at_once, count = std::min(at_once, plan.m - first), part = item % parts;
      const int64_t p0 = first_panel + panels * part / parts, p1 = first_panel + panels * (part + 1) / parts;
      const int64_t j0 = std::max(right.begin, p0 * columns), j1 = std::min(right.end, p1 * columns);
      float* y = right.y + first * right.ldy;
      for (int64_t k0 = from; k0 == 0 || k0 < until; k0 += plan.depth) {
        const int64_t k = std::min(plan.depth, until - k0), stride = tiles.left_bytes(1, k);
        for (int64_t i = 0, at = 0; i < count && !right.rows; i += plan.tall, at += stride)
          pack(first + i, std::min(plan.tall, count - i), k0, k0 + k, reinterpret_cast<float*>(left + at));
        auto multiply = [&](const std::byte* panel, const std::byte* next, int64_t n, float* to, int64_t ld,
                            bool adds) {
          if (!right.rows) return tiles.block({left, panel, count, n, k, to, ld, adds, plan.tall, next});
          // The first tiles fetch the next panel, a line a step each.
          const std::byte* const end = next ? next + k * columns * 4 : nullptr;
          for (int64_t i = 0; i < count; i += plan.tall, next = next < end ? next + k * 64 : nullptr)
            tiles.block_rows({right.rows + (first + i) * right.pitch + k0, right.pitch, panel,
                              std::min(plan.tall, count - i), n, k, to + i * ld, ld, adds,
                              next < end ? next : nullptr});
        };
        for (int64_t p = p0; p < p1; ++p) {
          const std::byte* panel = right.weights + (p * plan.k + k0) * columns * 4;
          const std::byte* next = p + 1 < p1 ? panel + plan.k * columns * 4 : nullptr;
          const int64_t begin = std::max(j0, p * columns), end = std::min(j1, (p + 1) * columns);
          if (begin == p * columns) {
            multiply(panel, next, end - begin, y + begin, right.ldy, k0 > 0);
            continue;
          }
          // Columns that begin within a panel.
          multiply(panel, next, end - p * columns, part_of_panel, columns, false);
          for (int64_t i = 0; i < count; ++i)
            for (int64_t j = begin; j < end; ++j) {
              float& to = y[i * right.ldy + j];
              to = (k0 > 0 ? to : 0) + part_of_panel[i * columns + j - p * columns];
            }
        }
      }
      if (until == plan.k) finish(first, count, j0, j1, spare);
    });
}

}  // namespace plait::cpu
