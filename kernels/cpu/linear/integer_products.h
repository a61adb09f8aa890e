#pragma once
// Products of 8-bit integers less their zero points, with exact sums, and what makes 8-bit integers of them.
#include <algorithm>

#include "core/exec/kernel.h"
#include "kernels/cpu/linear/integer_tile.h"
#include "kernels/cpu/rows/code_loops.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// Sizes of packed operands: left [m, k] in whole, right [k, n] a panel of columns for each worker.
struct IntegerPlan {
  /// i32 sums of more than this many products could overflow.
  static constexpr int64_t deepest = 32768;

  IntegerPlan(const IntegerTiles& tiles, int64_t m, int64_t k)
      : pairs((k + 1) / 2),
        row_tiles((m + tiles.rows - 1) / tiles.rows),
        left_bytes(align(row_tiles * tiles.rows * pairs * 4)) {
    panel = align(pairs * tiles.columns * 4);
    sums = align(tiles.rows * tiles.columns * 4);
    worker_bytes = panel + 3 * sums + align(4 * std::max(tiles.columns, pairs));
  }
  int64_t bytes(int threads) const { return left_bytes + threads * worker_bytes; }

  int64_t pairs, row_tiles, left_bytes, panel, sums, worker_bytes;
};

/// y [m, n] = left [m, k] right [k, n]. `left(row, to)` writes the k numbers of a row, `right(row, j0, count, to)` numbers
/// [j0, j0 + count) of one of k rows; `finish(row, j0, count, sums)` takes those of y, i32 or, of many steps, i64. Each is called once
/// for what it names but `right`, which is called once for each panel; by any worker.
template <class Left, class Right, class Finish>
void run_integer_product(ThreadPool& pool, const IntegerTiles& tiles, const CodeLoops& loops, int64_t m, int64_t n,
                         int64_t k, std::byte* scratch, Left left, Right right, Finish finish) {
  const IntegerPlan plan(tiles, m, k);
  auto* packed = reinterpret_cast<int32_t*>(scratch);
  auto worker_scratch = [&](int worker) { return scratch + plan.left_bytes + worker * plan.worker_bytes; };
  share(pool, plan.row_tiles, m * k, [&](int64_t tile, int worker) {
    auto* row = reinterpret_cast<int16_t*>(worker_scratch(worker) + plan.panel + 3 * plan.sums);
    int32_t* to = packed + tile * tiles.rows * plan.pairs;
    if (plan.pairs > 0) row[2 * plan.pairs - 1] = 0;  // where k is odd
    for (int64_t i = 0; i < tiles.rows; ++i) {
      if (tile * tiles.rows + i < m) left(tile * tiles.rows + i, row);
      else std::fill_n(row, 2 * plan.pairs, int16_t{0});
      for (int64_t p = 0; p < plan.pairs; ++p)
        to[p * tiles.rows + i] = static_cast<int32_t>(
            static_cast<uint16_t>(row[2 * p]) | static_cast<uint32_t>(static_cast<uint16_t>(row[2 * p + 1])) << 16);
    }
  });
  share(pool, (n + tiles.columns - 1) / tiles.columns, m * n * k / 16, [&](int64_t item, int worker) {
    std::byte* own = worker_scratch(worker);
    auto* panel = reinterpret_cast<int16_t*>(own);
    auto* sums = reinterpret_cast<int32_t*>(own + plan.panel);
    auto* wide = reinterpret_cast<int64_t*>(own + plan.panel + plan.sums);
    auto* lines = reinterpret_cast<int16_t*>(own + plan.panel + 3 * plan.sums);
    const int64_t j0 = item * tiles.columns, count = std::min(tiles.columns, n - j0);
    for (int64_t p = 0; p < plan.pairs; ++p) {
      std::fill_n(lines, 2 * tiles.columns, int16_t{0});
      right(2 * p, j0, count, lines);
      if (2 * p + 1 < k) right(2 * p + 1, j0, count, lines + tiles.columns);
      loops.interleave(lines, lines + tiles.columns, tiles.columns, panel + p * tiles.columns * 2);
    }
    for (int64_t tile = 0; tile < plan.row_tiles; ++tile) {
      const int64_t rows = std::min(tiles.rows, m - tile * tiles.rows);
      if (k <= IntegerPlan::deepest) {
        tiles.multiply(packed + tile * plan.pairs * tiles.rows, panel, plan.pairs, rows, sums);
        for (int64_t i = 0; i < rows; ++i)
          finish(tile * tiles.rows + i, j0, count, static_cast<const int32_t*>(sums + i * tiles.columns));
        continue;
      }
      std::fill_n(wide, tiles.rows * tiles.columns, int64_t{0});
      for (int64_t p = 0; p < plan.pairs; p += IntegerPlan::deepest / 2) {
        const int64_t depth = std::min(IntegerPlan::deepest / 2, plan.pairs - p);
        tiles.multiply(packed + (tile * plan.pairs + p) * tiles.rows, panel + p * tiles.columns * 2, depth, rows,
                       sums);
        for (int64_t i = 0; i < rows * tiles.columns; ++i) wide[i] += sums[i];
      }
      for (int64_t i = 0; i < rows; ++i)
        finish(tile * tiles.rows + i, j0, count, static_cast<const int64_t*>(wide + i * tiles.columns));
    }
  });
}

/// `values[i] - zero` of 8-bit numbers `step` apart.
inline void centre(const CodeLoops& loops, const TensorView& codes, int64_t first, int64_t step, int64_t count,
                   int32_t zero, int16_t* to) {
  if (codes.dtype == DType::u8) loops.u8.centre(codes.as<uint8_t>() + first, step, count, zero, to);
  else loops.i8.centre(codes.as<int8_t>() + first, step, count, zero, to);
}

/// An element of an 8-bit tensor; 0 of an absent one.
inline int32_t code_at(const TensorView* codes, int64_t i) {
  if (!codes || !codes->present()) return 0;
  return codes->dtype == DType::u8 ? codes->as<uint8_t>()[i] : codes->as<int8_t>()[i];
}

inline bool is_code(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

}  // namespace plait::cpu
