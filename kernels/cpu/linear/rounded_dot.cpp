// Rounded dot products with vdpbf16ps: 16 lanes of pairs along k, 32 values of k per step, with lanes added at the
// end by one fixed tree. A packed group has its rows contiguous, with k zero-padded to a multiple of 32. Weights are
// read in place, for many rows too: outer products of transposed ones were no faster at 512 rows, and slower at 64.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/linear/packed_tile.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/simd/bf16_dot.h"

namespace plait::cpu {
namespace {

constexpr int64_t step = 32;  ///< values of k per instruction
constexpr int most_rows = 6;  ///< 6 x 4 sums are 24 of 32 registers
constexpr int columns = 4;
constexpr int64_t strip_bytes = int64_t{128} << 10;  ///< of w
constexpr int64_t memory_rows = 64;                  ///< rows of x up to which reading w matters
constexpr int single_row_columns = 8;                ///< more streams, which hide more of the memory's latency

int64_t padded(int64_t k) { return (k + step - 1) / step * step; }

void pack_rows(const float* x, int64_t m, int64_t k, int64_t group, std::byte* packed) {
  const int64_t width = padded(k);
  auto* to = reinterpret_cast<uint8_t*>(packed) + group * rounded_group * width * 2;
  for (int64_t i = group * rounded_group; i < (group + 1) * rounded_group; ++i, to += width * 2) {
    const int64_t count = i < m ? k : 0;
    elementwise_loops(Isa::avx2).narrow_bf16(x + i * k, to, count);
    memset(to + count * 2, 0, static_cast<size_t>((width - count) * 2));
  }
}

PLAIT_BEGIN_AVX512_BF16

struct Tile {
  const uint16_t* x;
  int64_t width;  ///< numbers from a row of x to the next
  const uint8_t* w;
  int64_t w_stride;  ///< bytes between rows of w
  int64_t k;
  float* y;  ///< row i at y + i * ldy, or without gaps
  int64_t ldy;
  int64_t ahead;  ///< bytes from a row of w to the next tile's, for prefetching; 0: none
};

/// The sums of each vector's lanes, with the bits of _mm512_reduce_add_ps: halves are added until one lane is left.
inline __m128 sums_of_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  __m512 sums = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0x4E));
  sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, 0xB1));
  const __m512i first = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, sums));
}

/// ROWS rows of x against COLUMNS rows of w. GAPS: rows of y are ldy apart.
template <class Op, int ROWS, int COLUMNS, bool GAPS>
void dot_tile(const Tile& tile) {
  const Tile t = tile;
  const int64_t ldy = GAPS ? t.ldy : COLUMNS;
  __m512 sums[ROWS][COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = _mm512_setzero_ps();
  auto add = [&](int64_t at, __mmask32 mask) {
    __m512i left[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) left[i] = _mm512_loadu_si512(t.x + i * t.width + at);
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) {
      __m512i right = _mm512_maskz_loadu_epi16(mask, t.w + j * t.w_stride + at * 2);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) sums[i][j] = Op::dot(sums[i][j], left[i], right);
    }
  };
  int64_t at = 0;
  if (t.ahead)
    for (; at + step <= t.k; at += step) {
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; ++j)
        _mm_prefetch(reinterpret_cast<const char*>(t.w + j * t.w_stride + at * 2 + t.ahead), _MM_HINT_T1);
      add(at, 0xFFFFFFFFu);
    }
  for (; at + step <= t.k; at += step) add(at, 0xFFFFFFFFu);
  if (at < t.k) add(at, (__mmask32{1} << (t.k - at)) - 1);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
    if constexpr (COLUMNS == 1) {
      t.y[i * ldy] = _mm512_reduce_add_ps(sums[i][0]);
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; j += 4)
        _mm_storeu_ps(t.y + i * ldy + j, sums_of_lanes(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]));
    }
  }
}

template <class Op, int COLUMNS, bool GAPS>
void dot_rows(int64_t rows, const Tile& tile) {
  switch (rows) {
    case 1: return dot_tile<Op, 1, COLUMNS, GAPS>(tile);
    case 2: return dot_tile<Op, 2, COLUMNS, GAPS>(tile);
    case 3: return dot_tile<Op, 3, COLUMNS, GAPS>(tile);
    case 4: return dot_tile<Op, 4, COLUMNS, GAPS>(tile);
    case 5: return dot_tile<Op, 5, COLUMNS, GAPS>(tile);
    case 6: return dot_tile<Op, 6, COLUMNS, GAPS>(tile);
  }
}

/// Rows [first, first + m) of x for the tile of w that begins at row j. Its rows are `apart` rows from each other, or ADJACENT.
template <class Op, int COLUMNS, bool ADJACENT>
void dot_rows_of(const PackedBlock& b, int64_t first, int64_t m, int64_t j, int64_t apart, int64_t ahead) {
  const int64_t width = padded(b.k), tiles = (m + most_rows - 1) / most_rows, row = b.k * 2;
  const auto* x = reinterpret_cast<const uint16_t*>(b.packed) + (b.begin + first) * width;
  float sums[most_rows * COLUMNS];
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t begin = m * tile / tiles, rows = m * (tile + 1) / tiles - begin;
    float* y = b.y + (first + begin) * b.ldy + j;
    dot_rows<Op, COLUMNS, ADJACENT>(rows, {x + begin * width, width, b.w + j * row, ADJACENT ? row : apart * row, b.k,
                                           ADJACENT ? y : sums, b.ldy, tile == 0 ? ahead : 0});
    if constexpr (!ADJACENT)
      for (int64_t i = 0; i < rows; ++i)
        for (int c = 0; c < COLUMNS; ++c) y[i * b.ldy + c * apart] = sums[i * COLUMNS + c];
  }
}

/// Each tile of w is read from memory once. Groups of rows of x stay in L1 for a strip of tiles, which stays in L2 for all
/// groups.
template <class Op, int COLUMNS, bool ADJACENT>
void dot_columns(const PackedBlock& b) {
  const int64_t row = b.k * 2, tiles = b.n / COLUMNS, groups = (b.m + rounded_group - 1) / rounded_group;
  const int64_t strip = std::max<int64_t>(1, strip_bytes / (COLUMNS * std::max<int64_t>(row, 1)));
  const int64_t next = ADJACENT ? COLUMNS : 1;
  for (int64_t begin = 0; begin < tiles; begin += strip)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t first = b.m * group / groups, m = b.m * (group + 1) / groups - first;
      for (int64_t tile = begin; tile < std::min(begin + strip, tiles); ++tile)
        dot_rows_of<Op, COLUMNS, ADJACENT>(b, first, m, tile * next, tiles,
                                           group == 0 && tile + 1 < tiles ? next * row : 0);
    }
  for (int64_t j = tiles * COLUMNS; j < b.n; ++j) dot_rows_of<Op, 1, true>(b, 0, b.m, j, 1, 0);
}

/// For few rows of x, as in linear_tile.cpp, the rows of a tile of w are parts of the block apart, since the prefetcher follows
/// one stream per page. Many rows of x hide the memory, and results of adjacent ones are stored at once.
template <class Op>
void dot_block(const PackedBlock& b) {
  if (b.m == 1) dot_columns<Op, single_row_columns, false>(b);
  else if (b.m <= memory_rows) dot_columns<Op, columns, false>(b);
  else dot_columns<Op, columns, true>(b);
}

PLAIT_END_AVX512_BF16

int64_t no_scratch(int64_t, int64_t, int64_t) { return 0; }

constexpr PackedTiles tiles_of(void (*block)(const PackedBlock&)) {
  return {4 * columns, rounded_group_of, rounded_bytes, pack_rows, no_scratch, block};
}
constexpr PackedTiles hardware = tiles_of(dot_block<Hardware>), emulated = tiles_of(dot_block<Emulated>);

}  // namespace

const PackedTiles& bf16_tiles() { return hardware; }
const PackedTiles& emulated_bf16_tiles() { return emulated; }

}  // namespace plait::cpu
