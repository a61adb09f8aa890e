// Packed products of bf16 numbers with AMX's tdpbf16ps, rounded while they are packed. A tile of outputs is 32 x 32:
// two tiles of rows (16 rows of 32 k) by two of columns (16 pairs of k of 16 columns), which is four products for
// four loads.
//
// Tiles: 0..3 sums, 4..5 of the left side, 6..7 of the right one.
#include "kernels/cpu/simd/amx_tile.h"
#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/gemm/bf16_tile.h"
#include "kernels/cpu/gemm/gemm_tile.h"

namespace plait::cpu {
namespace {

constexpr int64_t edge = 2 * tile_rows;  ///< rows and columns of a tile of outputs
constexpr int64_t lanes = pair_lanes;
constexpr int64_t tile_pairs = tile_bytes / 4;

int64_t steps_of(int64_t k) { return (k + tile_depth - 1) / tile_depth; }
int64_t packed_bytes(int64_t m, int64_t k) { return (m + edge - 1) / edge * steps_of(k) * 2 * tile_bytes; }

PLAIT_BEGIN_AVX512_BF16

/// Rows of the left side as rows of tiles: for each 32 of k the upper tile, then the lower one.
void pack_left(const GemmLeft& a, int64_t m, int64_t k, std::byte* to) {
  const auto* data = reinterpret_cast<const uint8_t*>(a.data);
  for (int64_t step = 0; step < steps_of(k); ++step)
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t first = half * tile_rows, rows = m - first;
      auto* out = reinterpret_cast<uint32_t*>(to) + (2 * step + half) * tile_pairs;
      __m512 v[lanes];
      for (int64_t i = 0; i < lanes; ++i) {
        __m512i one = _mm512_setzero_si512();
        if (a.transposed && rows > 0)
          one = pair_at<Floats>(data + first * Floats::size, a.ld, step * lanes + i, k, rows);
        if (!a.transposed && i < rows)
          one = Floats::pairs(data + ((first + i) * a.ld + step * tile_depth) * Floats::size, k - step * tile_depth);
        v[i] = _mm512_castsi512_ps(one);
      }
      if (a.transposed) transpose_lanes(v);
      for (int64_t i = 0; i < lanes; ++i) _mm512_storeu_ps(out + i * lanes, v[i]);
    }
}

/// Columns of the right side as pairs of k: for each 32 of k the left tile, then the right one.
template <class T>
void pack_panels(const GemmRight& b, int64_t n, int64_t k, uint32_t* to) {
  for (int64_t j = 0; j < n; j += edge, to += steps_of(k) * 2 * tile_pairs)
    for (int64_t step = 0; step < steps_of(k); ++step)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t first = j + half * tile_rows, columns = n - first;
        uint32_t* out = to + (2 * step + half) * tile_pairs;
        __m512 v[lanes];
        if (b.transposed)
          pairs_of_rows<T>(b.data + first * b.ld * T::size, b.ld * T::size, columns, k, step * lanes, v);
        for (int64_t i = 0; i < lanes && !b.transposed; ++i)
          v[i] = _mm512_castsi512_ps(columns > 0
                                         ? pair_at<T>(b.data + first * T::size, b.ld, step * lanes + i, k, columns)
                                         : _mm512_setzero_si512());
        for (int64_t i = 0; i < lanes; ++i) _mm512_storeu_ps(out + i * lanes, v[i]);
      }
}

void pack_right(const GemmRight& b, int64_t n, int64_t k, std::byte* to) {
  auto* out = reinterpret_cast<uint32_t*>(to);
  if (b.dtype == DType::bf16) pack_panels<Halves>(b, n, k, out);
  else pack_panels<Floats>(b, n, k, out);
}

PLAIT_END_AVX512_BF16

/// Stores a tile of sums to y, or adds it; rows and columns may be fewer than 16, or zero.
void put(const float* sums, float* y, int64_t ldy, int64_t rows, int64_t columns, bool adds) {
  for (int64_t i = 0; i < rows && i < tile_rows; ++i)
    for (int64_t j = 0; j < columns && j < tile_rows; ++j)
      y[i * ldy + j] = sums[i * tile_rows + j] + (adds ? y[i * ldy + j] : 0);
}

template <class Tiles>
void run_tile(Tiles& tiles, const std::byte* a, const std::byte* b, int64_t steps, float* y, int64_t ldy,
              int64_t rows, int64_t columns, bool adds) {
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
  for (int64_t step = 0; step < steps; ++step, a += 2 * tile_bytes, b += 2 * tile_bytes) {
    tiles.template load<4>(a, 64);
    tiles.template load<6>(b, 64);
    tiles.template dot<0, 4, 6>();
    tiles.template load<7>(b + tile_bytes, 64);
    tiles.template dot<1, 4, 7>();
    tiles.template load<5>(a + tile_bytes, 64);
    tiles.template dot<2, 5, 6>();
    tiles.template dot<3, 5, 7>();
  }
  alignas(64) float sums[tile_bytes / 4];
  tiles.template store<0>(sums);
  put(sums, y, ldy, rows, columns, adds);
  tiles.template store<1>(sums);
  put(sums, y + tile_rows, ldy, rows, columns - tile_rows, adds);
  tiles.template store<2>(sums);
  put(sums, y + tile_rows * ldy, ldy, rows - tile_rows, columns, adds);
  tiles.template store<3>(sums);
  put(sums, y + tile_rows * ldy + tile_rows, ldy, rows - tile_rows, columns - tile_rows, adds);
}

template <class Tiles>
void block(const GemmBlock& g) {
  Tiles tiles;
  const int64_t steps = steps_of(g.k), stride = steps * 2 * tile_bytes;
  for (int64_t i = 0; i < g.m; i += edge)
    for (int64_t j = 0; j < g.n; j += edge)
      run_tile(tiles, g.left + i / edge * stride, g.right + j / edge * stride, steps, g.y + i * g.ldy + j, g.ldy,
               g.m - i, g.n - j, g.adds);
}

constexpr GemmTiles tiles_of(void (*block)(const GemmBlock&)) {
  return {edge, edge, packed_bytes, packed_bytes, pack_left, pack_right, block};
}
constexpr GemmTiles hardware = tiles_of(block<AmxTiles>), emulated = tiles_of(block<EmulatedAmxTiles>);

}  // namespace

const GemmTiles& amx_gemm_tiles() { return hardware; }
const GemmTiles& emulated_amx_gemm_tiles() { return emulated; }

}  // namespace plait::cpu
