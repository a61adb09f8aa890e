#pragma once
// Products of 8-bit integers less their zero points, with exact sums, and what makes 8-bit integers of them.
#include <algorithm>
#include <utility>

#include "core/exec/kernel.h"
#include "kernels/cpu/linear/integer_tile.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// Sizes of operands as tiles take them, in units of 4 bytes: of left [m, k] tiles of units [steps, rows] and the sums of rows; of right
/// [k, n] panels of units [steps, columns] and the sums of columns.
struct IntegerPlan {
  /// i32 sums of more than this many products could overflow.
  static constexpr int64_t deepest = 32768;

  IntegerPlan(const IntegerTiles& tiles, int64_t m, int64_t k)
      : steps(tiles.steps(k)),
        row_tiles((m + tiles.rows - 1) / tiles.rows),
        tile_units(tiles.rows * (steps + 1)),
        panel_units(tiles.columns * (steps + 1)),
        left_bytes(align(row_tiles * tile_units * 4)),
        panel(align(panel_units * 4)),
        sums(align(tiles.rows * tiles.columns * 4)),
        zeros(align(tiles.columns * 4)),
        worker_bytes(panel + 3 * sums + zeros + align((tiles.depth + 1) * tiles.columns)) {}
  int64_t bytes(int threads) const { return left_bytes + threads * worker_bytes; }

  int64_t steps, row_tiles, tile_units, panel_units, left_bytes, panel, sums, zeros, worker_bytes;
};

/// Packs tile `tile` of m rows of k codes; row(i) is the first code of one.
template <class Row>
void pack_left_tile(const IntegerTiles& tiles, const IntegerPlan& plan, int64_t tile, int64_t m, int64_t k,
                    bool is_signed, const Row& row, int32_t* to) {
  to += tile * plan.tile_units;
  for (int64_t i = 0; i < tiles.rows; ++i) {
    const bool there = tile * tiles.rows + i < m;
    tiles.pack_left(there ? row(tile * tiles.rows + i) : nullptr, there ? k : 0, is_signed, i, plan.steps, to,
                    to + plan.steps * tiles.rows + i);
  }
}

/// Packs `columns` columns of k rows of codes. right(row, to) is where a row's can be read: `to`, if it has written them there. Without
/// `sums` those of columns are not made.
template <class Right>
void pack_right_panel(const IntegerTiles& tiles, const IntegerPlan& plan, int64_t k, bool is_signed, bool sums,
                      uint8_t* lines, const Right& right, int32_t* to) {
  int32_t* const own = to + plan.steps * tiles.columns;
  std::fill_n(own, tiles.columns, 0);
  uint8_t* const blank = lines + tiles.depth * tiles.columns;
  std::fill_n(blank, tiles.columns, static_cast<uint8_t>(tiles.right_shift(is_signed)));  // becomes 0
  const int64_t made = (k + tiles.depth - 1) / tiles.depth;
  for (int64_t p = 0; p < made; ++p) {
    const uint8_t* rows[4];
    for (int64_t i = 0; i < tiles.depth; ++i)
      rows[i] = p * tiles.depth + i < k ? right(p * tiles.depth + i, lines + i * tiles.columns) : blank;
    tiles.pack_right(rows, is_signed, to + p * tiles.columns, sums ? own : nullptr);
  }
  std::fill(to + made * tiles.columns, own, 0);
}

/// The operands of y [m, n] = (left - its zero points) (right - its zero points).
struct IntegerProduct {
  int64_t m, n, k;
  const int32_t* left;   ///< packed
  const int32_t* right;  ///< packed, with sums; null: packed panel by panel
  bool left_signed, right_signed;
  bool left_zeros;     ///< some zero point of the left is not 0 in its packed form
  std::byte* scratch;  ///< of the workers
};

/// `left_zero(row)` and `right_zero(column)` are of codes; `right(row, j0, count, to)` is what pack_right_panel takes, `count` codes being
/// there; `finish(first, rows, j0, count, sums)` takes sums [rows, tiles.columns] of y, i32 or, of many steps, i64, once each. All are
/// called by any worker.
template <class LeftZero, class RightZero, class Right, class Finish>
void run_integer_product(ThreadPool& pool, const IntegerTiles& tiles, const IntegerProduct& own, LeftZero left_zero,
                         RightZero right_zero, Right right, Finish finish) {
  const IntegerPlan plan(tiles, own.m, own.k);
  const int64_t panels = (own.n + tiles.columns - 1) / tiles.columns;
  // Few columns: their panels are packed again for each of some parts of the rows.
  const int64_t parts = std::clamp<int64_t>(2 * pool.size() / std::max<int64_t>(panels, 1), 1,
                                            std::max<int64_t>(plan.row_tiles / 4, 1));
  const int64_t cost = (own.m * own.k / parts + own.k) * tiles.columns / 32;
  // Two panels of 8-bit results are a cache line.
  share_ranges(pool, panels * parts, parts > 1 ? 1 : 2, cost, [&](int64_t begin, int64_t end, int worker) {
    std::byte* at = own.scratch + worker * plan.worker_bytes;
    auto take = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
    auto* packed = reinterpret_cast<int32_t*>(take(plan.panel));
    auto* sums = reinterpret_cast<int32_t*>(take(plan.sums));
    auto* wide = reinterpret_cast<int64_t*>(take(2 * plan.sums));
    auto* zeros = reinterpret_cast<int32_t*>(take(plan.zeros));
    auto* lines = reinterpret_cast<uint8_t*>(at);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t j0 = item / parts * tiles.columns, count = std::min(tiles.columns, own.n - j0),
                    part = item % parts;
      const int32_t* panel = own.right ? own.right + item / parts * plan.panel_units : packed;
      if (!own.right)
        pack_right_panel(
            tiles, plan, own.k, own.right_signed, own.left_zeros, lines,
            [&](int64_t row, uint8_t* to) { return right(row, j0, count, to); }, packed);
      const int32_t* right_sums = panel + plan.steps * tiles.columns;
      const int32_t left_shift = tiles.left_shift(own.left_signed), right_shift = tiles.right_shift(own.right_signed);
      bool right_zeros = false;
      for (int64_t j = 0; j < tiles.columns; ++j) {
        zeros[j] = j < count ? right_zero(j0 + j) + right_shift : 0;
        right_zeros |= zeros[j] != 0;
      }
      for (int64_t tile = part * plan.row_tiles / parts, end = (part + 1) * plan.row_tiles / parts; tile < end;
           ++tile) {
        const int32_t *left = own.left + tile * plan.tile_units, *row_sums = left + plan.steps * tiles.rows;
        const int64_t first = tile * tiles.rows, rows = std::min(tiles.rows, own.m - first);
        if (own.k <= IntegerPlan::deepest) {
          tiles.multiply(left, panel, plan.steps, 0, plan.steps, rows, sums);
          for (int64_t i = 0; i < rows; ++i) {
            const int32_t zero = left_zero(first + i) + left_shift;
            int32_t* const line = sums + i * tiles.columns;
            if (right_zeros || zero != 0)
              tiles.correct(zero, right_sums, zeros, row_sums[i] - static_cast<int32_t>(own.k) * zero, line);
          }
          finish(first, rows, j0, count, static_cast<const int32_t*>(sums));
          continue;
        }
        std::fill_n(wide, tiles.rows * tiles.columns, int64_t{0});
        for (int64_t p = 0, most = IntegerPlan::deepest / tiles.depth; p < plan.steps; p += most) {
          tiles.multiply(left, panel, plan.steps, p, std::min(most, plan.steps - p), rows, sums);
          for (int64_t i = 0; i < rows * tiles.columns; ++i) wide[i] += sums[i];
        }
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t zero = left_zero(first + i) + left_shift;
          int64_t* const line = wide + i * tiles.columns;
          for (int64_t j = 0; j < count; ++j)
            line[j] -= (zero != 0 ? zero * right_sums[j] : 0) + zeros[j] * (row_sums[i] - own.k * zero);
        }
        finish(first, rows, j0, count, static_cast<const int64_t*>(wide));
      }
    }
  });
}

/// An element of an 8-bit tensor; 0 of an absent one.
inline int32_t code_at(const TensorView* codes, int64_t i) {
  if (!codes || !codes->present()) return 0;
  return codes->dtype == DType::u8 ? codes->as<uint8_t>()[i] : codes->as<int8_t>()[i];
}

inline bool is_code(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

}  // namespace plait::cpu
