// Rounded dot products with AMX's tdpbf16ps. A tile is 16 rows of 64 bytes. Weights are the left operand: 16 rows of
// w by 32 values of k, loaded from the file with its own stride; x is the right one, 16 of its rows transposed to
// pairs along k (16 pairs by 16 rows of x). So y is transposed, [16 of n, 16 of m], and is transposed back while it
// is stored. One row of x goes through the same tiles, with zeros or other rows as its 15 neighbours: columns are
// independent.
//
// Tiles: 0..3 sums (2 of w by 2 of x), 4..5 of w, 6..7 of x.
#include <cstring>

#include "kernels/cpu/simd/amx_tile.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/linear/packed_tile.h"

namespace plait::cpu {
namespace {

int64_t steps_of(int64_t k) { return (k + tile_depth - 1) / tile_depth; }

/// A group is one tile for each 32 values of k: pair p of row i at (p, i).
void pack_pairs(const float* x, int64_t m, int64_t k, int64_t group, std::byte* packed) {
  const int64_t steps = steps_of(k);
  auto* to = reinterpret_cast<uint8_t*>(packed) + group * steps * tile_bytes;
  memset(to, 0, static_cast<size_t>(steps * tile_bytes));
  const int64_t first = group * rounded_group, rows = m - first < rounded_group ? m - first : rounded_group;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t at = 0; at < k; at += tile_depth) {
      uint8_t row[tile_depth * 2] = {};
      elementwise_loops(Isa::avx2).narrow_bf16(x + (first + i) * k + at, row,
                                               k - at < tile_depth ? k - at : tile_depth);
      for (int64_t pair = 0; pair < 16; ++pair) memcpy(to + at * 32 + pair * 64 + i * 4, row + pair * 4, 4);
    }
}

/// Location of 16 rows of w over 32 values of k: in place, or, at the ends of w, in `buffer` with zero padding.
struct Weights {
  const uint8_t* w;
  int64_t rows, k;
  alignas(64) uint8_t buffer[2][tile_bytes];

  template <class Tiles, int T>
  void load(Tiles& tiles, int64_t row, int64_t at) {
    if (row + tile_rows <= rows && at + tile_depth <= k) return tiles.template load<T>(w + (row * k + at) * 2, k * 2);
    uint8_t* copy = buffer[T - 4];
    memset(copy, 0, tile_bytes);
    const int64_t count = k - at < tile_depth ? k - at : tile_depth;
    for (int64_t i = 0; i < tile_rows && row + i < rows; ++i)
      memcpy(copy + i * 64, w + ((row + i) * k + at) * 2, static_cast<size_t>(count * 2));
    tiles.template load<T>(copy, 64);
  }
};

/// Transposes a tile of sums, [16 of n, 16 of m], into y.
void store_transposed(const float* sums, float* y, int64_t ldy, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows && i < 16; ++i)
    for (int64_t j = 0; j < columns && j < 16; ++j) y[i * ldy + j] = sums[j * 16 + i];
}

/// 32 rows of w by 32 rows of x, or 16 where there are no more (TWO_W, TWO_X false).
template <class Tiles, bool TWO_W, bool TWO_X>
void amx_tile(Tiles& tiles, Weights& weights, int64_t row, const uint8_t* x, int64_t group_bytes, float* y,
              int64_t ldy, int64_t m) {
  tiles.template zero<0>();
  if constexpr (TWO_X) tiles.template zero<1>();
  if constexpr (TWO_W) tiles.template zero<2>();
  if constexpr (TWO_W && TWO_X) tiles.template zero<3>();
  for (int64_t at = 0; at < weights.k; at += tile_depth, x += tile_bytes) {
    tiles.template load<6>(x, 64);
    weights.load<Tiles, 4>(tiles, row, at);
    tiles.template dot<0, 4, 6>();
    if constexpr (TWO_X) {
      tiles.template load<7>(x + group_bytes, 64);
      tiles.template dot<1, 4, 7>();
    }
    if constexpr (TWO_W) {
      weights.load<Tiles, 5>(tiles, row + tile_rows, at);
      tiles.template dot<2, 5, 6>();
      if constexpr (TWO_X) tiles.template dot<3, 5, 7>();
    }
  }
  alignas(64) float sums[256];
  const int64_t columns = weights.rows - row;
  tiles.template store<0>(sums);
  store_transposed(sums, y + row, ldy, m, columns);
  if constexpr (TWO_X) {
    tiles.template store<1>(sums);
    store_transposed(sums, y + 16 * ldy + row, ldy, m - 16, columns);
  }
  if constexpr (TWO_W) {
    tiles.template store<2>(sums);
    store_transposed(sums, y + row + 16, ldy, m, columns - 16);
  }
  if constexpr (TWO_W && TWO_X) {
    tiles.template store<3>(sums);
    store_transposed(sums, y + 16 * ldy + row + 16, ldy, m - 16, columns - 16);
  }
}

template <class Tiles>
void amx_block(const PackedBlock& b) {
  Tiles tiles;
  Weights weights{b.w, b.n, b.k, {}};
  const int64_t group_bytes = steps_of(b.k) * tile_bytes;
  for (int64_t j = 0; j < b.n; j += 2 * tile_rows) {
    const bool two_w = j + tile_rows < b.n;
    for (int64_t i = 0; i < b.m; i += 2 * rounded_group) {
      const auto* x = reinterpret_cast<const uint8_t*>(b.packed) + (b.begin + i) / rounded_group * group_bytes;
      const bool two_x = i + rounded_group < b.m;
      float* y = b.y + i * b.ldy;
      if (two_w && two_x) amx_tile<Tiles, true, true>(tiles, weights, j, x, group_bytes, y, b.ldy, b.m - i);
      else if (two_w) amx_tile<Tiles, true, false>(tiles, weights, j, x, group_bytes, y, b.ldy, b.m - i);
      else if (two_x) amx_tile<Tiles, false, true>(tiles, weights, j, x, group_bytes, y, b.ldy, b.m - i);
      else amx_tile<Tiles, false, false>(tiles, weights, j, x, group_bytes, y, b.ldy, b.m - i);
    }
  }
}

int64_t no_scratch(int64_t, int64_t, int64_t) { return 0; }

constexpr PackedTiles tiles_of(void (*block)(const PackedBlock&)) {
  return {2 * tile_rows, rounded_group_of, rounded_bytes, pack_pairs, no_scratch, block};
}
constexpr PackedTiles hardware = tiles_of(amx_block<AmxTiles>), emulated = tiles_of(amx_block<EmulatedAmxTiles>);

}  // namespace

const PackedTiles& amx_tiles() { return hardware; }
const PackedTiles& emulated_amx_tiles() { return emulated; }

}  // namespace plait::cpu
