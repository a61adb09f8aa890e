#include "kernels/cpu/linear_tile.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

// Sums of one tile live in registers: AVX-512 24 of 32 (6 rows of x, 4 of w, leaving 6 for x and one or two for w),
// AVX2 12 of 16 (3 x 4, 3 for x, one for w). A step of L values of k costs 10 (7) loads for 24 (12) fma, so that the
// two fma a cycle are not held up by the two loads a cycle.
constexpr int tile_rows = HWY_TARGET == HWY_AVX3 ? 6 : 3;
constexpr int tile_columns = 4;
/// One row of x has too few sums in flight with 4 rows of w: 8 cover the latency of fma and of memory.
constexpr int single_row_columns = 8;
/// k is cut so that a tile's x (6 x 704 floats, 17 KB of 32 KB L1) stays in L1 while tiles of w (11 KB) pass by.
constexpr int64_t k_steps = 704 / L;
/// Up to this many rows of x memory decides; rows of w in 16 bits are converted in registers, once for each tile,
/// beyond it once for all tiles (a load and a store more). Either is exact.
constexpr int64_t most_few_rows = 2 * tile_rows;

/// A tile of ROWS x COLUMNS outputs over k in [begin, end).
struct Tile {
  const float* x;
  int64_t ldx;
  const uint8_t* w;
  int64_t w_stride;  ///< bytes between rows of w
  int64_t begin, end;
  const float* from;  ///< sums so far, L lanes for each output; null: zeros
  float* to;          ///< where sums go that are not complete; null: they are, and go to y
  float* y;
  int64_t ldy;
  int64_t ahead;  ///< bytes from a row of w to what the next tile will read: fetched meanwhile; 0: nothing
};

template <class W, int ROWS, int COLUMNS>
HWY_INLINE void step(const Tile& t, int64_t k, V (&sums)[ROWS][COLUMNS]) {
  V x[ROWS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) x[i] = hn::LoadU(df, t.x + i * t.ldx + k);
#pragma GCC unroll 8
  for (int j = 0; j < COLUMNS; ++j) {
    V w = W::load(t.w + j * t.w_stride + k * W::size);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) sums[i][j] = hn::MulAdd(x[i], w, sums[i][j]);
  }
}

template <class W, int COLUMNS>
HWY_INLINE void fetch_ahead(const Tile& t, int64_t k) {
#pragma GCC unroll 8
  for (int j = 0; j < COLUMNS; ++j)
#pragma GCC unroll 8
    for (int64_t byte = 0; byte < 2 * L * W::size; byte += 64)
      _mm_prefetch(reinterpret_cast<const char*>(t.w + j * t.w_stride + k * W::size + t.ahead + byte), _MM_HINT_T1);
}

template <class W, int ROWS, int COLUMNS>
void run_tile(const Tile& tile) {
  const Tile t = tile;
  V sums[ROWS][COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j)
      sums[i][j] = t.from ? hn::LoadU(df, t.from + (i * COLUMNS + j) * L) : hn::Zero(df);
  int64_t k = t.begin;
  if (t.ahead) {
    for (; k + 2 * L <= t.end; k += 2 * L) {
      fetch_ahead<W, COLUMNS>(t, k);
      step<W, ROWS, COLUMNS>(t, k, sums);
      step<W, ROWS, COLUMNS>(t, k + L, sums);
    }
  }
  for (; k + L <= t.end; k += L) step<W, ROWS, COLUMNS>(t, k, sums);
  if (k < t.end) {
    int64_t count = t.end - k;
    V w[COLUMNS];
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) w[j] = load_some<W>(t.w + j * t.w_stride + k * W::size, count);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      V x = load_some<AsF32>(bytes(t.x + i * t.ldx + k), count);
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; ++j) sums[i][j] = hn::MulAdd(x, w[j], sums[i][j]);
    }
  }
  if (t.to) {
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; ++j) hn::StoreU(sums[i][j], df, t.to + (i * COLUMNS + j) * L);
    return;
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
    if constexpr (COLUMNS == 1) {
      t.y[i * t.ldy] = sum_lanes(sums[i][0]);
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < COLUMNS; j += 4)
        _mm_storeu_ps(t.y + i * t.ldy + j, sum_lanes(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]));
    }
  }
}

template <class W, int COLUMNS>
void run_tile(const Tile& tile, int64_t rows) {
  switch (rows) {
    case 1: return run_tile<W, 1, COLUMNS>(tile);
    case 2: return run_tile<W, 2, COLUMNS>(tile);
    case 3: return run_tile<W, 3, COLUMNS>(tile);
#if HWY_TARGET == HWY_AVX3
    case 4: return run_tile<W, 4, COLUMNS>(tile);
    case 5: return run_tile<W, 5, COLUMNS>(tile);
    case 6: return run_tile<W, 6, COLUMNS>(tile);
#endif
  }
}

/// One row of x: memory decides. The rows of w that are in flight lie an eighth of the block apart: the prefetcher
/// follows one stream a page, so that neighbours would share one, and eight streams hide more latency (17 instead of
/// 15 GB/s with two threads, where plain reads reach 20).
template <class W>
void single_row(const LinearBlock& b) {
  constexpr int streams = single_row_columns;
  const int64_t row = b.k * W::size, apart = b.n / streams;
  float sums[streams];
  Tile t{b.x, b.ldx, b.w, apart * row, 0, b.k, nullptr, nullptr, sums, 0, 0};
  for (int64_t j = 0; j < apart; ++j) {
    t.w = b.w + j * row;
    t.ahead = j + 1 < apart ? row : 0;
    run_tile<W, 1, streams>(t);
    for (int i = 0; i < streams; ++i) b.y[j + i * apart] = sums[i];
  }
  t.ahead = 0;
  for (int64_t j = apart * streams; j < b.n; ++j) {
    t.w = b.w + j * row;
    t.y = b.y + j;
    run_tile<W, 1, 1>(t);
  }
}

/// Few rows of x: each tile of w is read from memory once, and again from L1 for further rows. Its rows of w lie a
/// quarter of the block apart, as for a single row of x.
template <class W>
void few_rows(const LinearBlock& b) {
  const int64_t tiles = (b.m + tile_rows - 1) / tile_rows, row = b.k * W::size, apart = b.n / tile_columns;
  float sums[tile_rows * tile_columns];
  for (int64_t j = 0; j < apart; ++j)
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t begin = b.m * tile / tiles, end = b.m * (tile + 1) / tiles;
      Tile t{b.x + begin * b.ldx,
             b.ldx,
             b.w + j * row,
             apart * row,
             0,
             b.k,
             nullptr,
             nullptr,
             sums,
             tile_columns,
             tile == 0 && j + 1 < apart ? row : 0};
      run_tile<W, tile_columns>(t, end - begin);
      for (int64_t i = begin; i < end; ++i)
        for (int c = 0; c < tile_columns; ++c) b.y[i * b.ldy + j + c * apart] = sums[(i - begin) * tile_columns + c];
    }
  for (int64_t j = apart * tile_columns; j < b.n; ++j)
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t begin = b.m * tile / tiles, end = b.m * (tile + 1) / tiles;
      Tile t{b.x + begin * b.ldx,
             b.ldx,
             b.w + j * row,
             row,
             0,
             b.k,
             nullptr,
             nullptr,
             b.y + begin * b.ldy + j,
             b.ldy,
             0};
      run_tile<W, 1>(t, end - begin);
    }
}

/// Steps of L values of k, the last one filled up with zeros: fma(0, 0, sum) leaves what the other paths leave.
int64_t steps_of(int64_t k) { return (k + L - 1) / L; }

/// `count` rows of k values, `size` bytes apart from the next, as [step][count][L] floats. In this form a tile reads one
/// stream, whatever k is: rows that lie a multiple of 4 KB apart (k = 1024, 2048) would all want the same lines of L1.
template <class W>
void interleave(const uint8_t* rows, int64_t stride, int64_t count, int64_t k, float* to) {
  const int64_t whole = k / L;
  for (int64_t step = 0; step < whole; ++step)
    for (int64_t i = 0; i < count; ++i, to += L) hn::StoreU(W::load(rows + i * stride + step * L * W::size), df, to);
  if (whole * L < k)
    for (int64_t i = 0; i < count; ++i, to += L)
      hn::StoreU(load_some<W>(rows + i * stride + whole * L * W::size, k - whole * L), df, to);
}

/// A tile of ROWS x tile_columns outputs over `steps` steps of interleaved x and w.
template <int ROWS>
void run_interleaved(const float* x, const float* w, int64_t steps, const float* from, float* to, float* y,
                     int64_t ldy) {
  V sums[ROWS][tile_columns];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < tile_columns; ++j)
      sums[i][j] = from ? hn::LoadU(df, from + (i * tile_columns + j) * L) : hn::Zero(df);
  for (int64_t step = 0; step < steps; ++step, x += ROWS * L, w += tile_columns * L) {
    V rows[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) rows[i] = hn::LoadU(df, x + i * L);
#pragma GCC unroll 8
    for (int j = 0; j < tile_columns; ++j) {
      V column = hn::LoadU(df, w + j * L);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) sums[i][j] = hn::MulAdd(rows[i], column, sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
    if (to) {
#pragma GCC unroll 8
      for (int j = 0; j < tile_columns; ++j) hn::StoreU(sums[i][j], df, to + (i * tile_columns + j) * L);
    } else {
      _mm_storeu_ps(y + i * ldy, sum_lanes(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
    }
  }
}

void run_interleaved(int64_t rows, const float* x, const float* w, int64_t steps, const float* from, float* to,
                     float* y, int64_t ldy) {
  switch (rows) {
    case 1: return run_interleaved<1>(x, w, steps, from, to, y, ldy);
    case 2: return run_interleaved<2>(x, w, steps, from, to, y, ldy);
    case 3: return run_interleaved<3>(x, w, steps, from, to, y, ldy);
#if HWY_TARGET == HWY_AVX3
    case 4: return run_interleaved<4>(x, w, steps, from, to, y, ldy);
    case 5: return run_interleaved<5>(x, w, steps, from, to, y, ldy);
    case 6: return run_interleaved<6>(x, w, steps, from, to, y, ldy);
#endif
  }
}

/// Many rows of x: w is widened and interleaved once for all of them, x once for each tile; copying costs a fiftieth of
/// the arithmetic. Scratch: w, a tile of x, and lanes of sums that wait for the next k.
template <class W>
void many_rows(const LinearBlock& b) {
  const int64_t steps = steps_of(b.k), groups = (b.n + tile_columns - 1) / tile_columns;
  float* w = b.scratch;
  float* x = w + groups * tile_columns * steps * L;
  float* sums = x + tile_rows * steps * L;
  for (int64_t group = 0; group < groups; ++group) {
    // The last group ends with the block and may repeat columns of the one before: the same bits, written twice.
    int64_t first = std::min(group * tile_columns, b.n - tile_columns);
    interleave<W>(b.w + first * b.k * W::size, b.k * W::size, tile_columns, b.k,
                  w + group * tile_columns * steps * L);
  }
  const int64_t tiles = (b.m + tile_rows - 1) / tile_rows;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    int64_t begin = b.m * tile / tiles, rows = b.m * (tile + 1) / tiles - begin;
    interleave<AsF32>(bytes(b.x + begin * b.ldx), b.ldx * AsF32::size, rows, b.k, x);
    for (int64_t step = 0; step < steps; step += k_steps) {
      int64_t count = std::min(k_steps, steps - step);
      bool last = step + count == steps;
      for (int64_t group = 0; group < groups; ++group) {
        float* lanes = sums + group * tile_rows * tile_columns * L;
        int64_t column = std::min(group * tile_columns, b.n - tile_columns);
        run_interleaved(rows, x + step * rows * L, w + (group * steps + step) * tile_columns * L, count,
                        step ? lanes : nullptr, last ? nullptr : lanes, b.y + begin * b.ldy + column, b.ldy);
      }
    }
  }
}

template <class W>
void block_of(const LinearBlock& b) {
  if (b.m == 1) return single_row<W>(b);
  if (b.m <= most_few_rows || b.n < tile_columns) return few_rows<W>(b);
  many_rows<W>(b);
}

void block(const LinearBlock& b) {
  if (b.k == 0) {
    for (int64_t i = 0; i < b.m; ++i) memset(b.y + i * b.ldy, 0, static_cast<size_t>(b.n) * sizeof(float));
  } else if (b.dtype == DType::bf16) {
    block_of<AsBF16>(b);
  } else if (b.dtype == DType::f16) {
    block_of<AsF16>(b);
  } else {
    block_of<AsF32>(b);
  }
}

const LinearTiles tiles{block};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const LinearTiles& linear_tiles(Isa isa) { return isa == Isa::avx2 ? N_AVX2::tiles : N_AVX3::tiles; }

int64_t linear_block_scratch(int64_t n, int64_t k) {
  constexpr int64_t most_rows = 6, most_lanes = 16;
  int64_t columns = (n + 3) / 4 * 4, padded = (k + most_lanes - 1) / most_lanes * most_lanes;
  return (columns + most_rows) * padded + columns * most_rows * most_lanes;
}

}  // namespace plait::cpu
#endif
