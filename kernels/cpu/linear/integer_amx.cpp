// Products of codes by AMX's tdpbsud. A tile of results is 32 x 32: two tiles of rows (16 rows of 64 numbers) by two of columns (16 units
// of 16 columns). Tiles: 0..3 sums, 4..5 of the left side, 6..7 of the right one.
#include "kernels/cpu/linear/integer_tile.h"
#include "kernels/cpu/simd/amx_tile.h"

namespace plait::cpu {
namespace {

constexpr int64_t rows = 2 * tile_rows, columns = 32, few_rows = 4;

template <class Tiles>
void multiply(const int32_t* left, const int32_t* right, int64_t steps, int64_t begin, int64_t count, int64_t made,
              int32_t* sums) {
  if (made <= few_rows) return multiply_quad_rows(left, right, steps, begin, count, made, sums);
  Tiles tiles;
  const bool both = made > tile_rows;
  const int64_t left_stride = steps * 4, right_stride = columns * 4;
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
  for (int64_t p = begin; p < begin + count; p += tile_rows) {
    tiles.template load<4>(left + p, left_stride);
    tiles.template load<6>(right + p * columns, right_stride);
    tiles.template dot_codes<0, 4, 6>();
    tiles.template load<7>(right + p * columns + 16, right_stride);
    tiles.template dot_codes<1, 4, 7>();
    if (!both) continue;
    tiles.template load<5>(left + tile_rows * steps + p, left_stride);
    tiles.template dot_codes<2, 5, 6>();
    tiles.template dot_codes<3, 5, 7>();
  }
  tiles.template store<0>(sums, right_stride);
  tiles.template store<1>(sums + 16, right_stride);
  if (!both) return;
  tiles.template store<2>(sums + tile_rows * columns, right_stride);
  tiles.template store<3>(sums + tile_rows * columns + 16, right_stride);
}

}  // namespace

IntegerTiles amx_tiles(IntegerTiles quads, bool emulated) {
  quads.rows = rows;
  quads.steps_grain = tile_rows;
  quads.pack_left = pack_quad_row;
  quads.multiply = emulated ? multiply<EmulatedAmxTiles> : multiply<AmxTiles>;
  return quads;
}

}  // namespace plait::cpu
