#include "kernels/cpu/linear/linear_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/linear_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

// Sums of one tile are in registers: AVX-512 24 of 32 (6 rows of x, 4 of w, leaving 6 for x and one or two for w),
// AVX2 12 of 16 (3 x 4, 3 for x, one for w). A step of L values of k costs 10 (7) loads for 24 (12) fma, so that two
// loads per cycle sustain two fma per cycle.
constexpr int tile_rows = HWY_TARGET == HWY_AVX3 ? 6 : 3;
constexpr int tile_columns = 4;
/// One row of x has too few sums in flight with 4 rows of w: 8 cover the latency of fma and of memory.
constexpr int single_row_columns = 8;
/// A tile of ROWS x COLUMNS outputs.
struct Tile {
  const float* x;
  int64_t ldx;
  const uint8_t* w;
  int64_t w_stride;  ///< bytes between rows of w
  int64_t k;
  float* y;
  int64_t ldy;
  int64_t ahead;  ///< bytes from a row of w to the next tile's, for prefetching; 0: none
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
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = hn::Zero(df);
  int64_t k = 0;
  if (t.ahead) {
    for (; k + 2 * L <= t.k; k += 2 * L) {
      fetch_ahead<W, COLUMNS>(t, k);
      step<W, ROWS, COLUMNS>(t, k, sums);
      step<W, ROWS, COLUMNS>(t, k + L, sums);
    }
  }
  for (; k + L <= t.k; k += L) step<W, ROWS, COLUMNS>(t, k, sums);
  if (k < t.k) {
    int64_t count = t.k - k;
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

/// One row of x: memory dominates. The rows of w in flight are an eighth of the block apart: the prefetcher follows
/// one stream per page, which neighbours would share, and eight streams hide more latency (17 instead of 15 GB/s with
/// two threads, where plain reads reach 20).
template <class W>
void single_row(const LinearBlock& b) {
  constexpr int streams = single_row_columns;
  const int64_t row = b.k * W::size, apart = b.n / streams;
  float sums[streams];
  Tile t{b.x, b.ldx, b.w, apart * row, b.k, sums, 0, 0};
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

/// Few rows of x: each tile of w is read from memory once, and again from L1 for further rows. Its rows of w are a
/// quarter of the block apart, for the same reason.
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
             b.k,
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
      Tile t{b.x + begin * b.ldx, b.ldx, b.w + j * row, row, b.k, b.y + begin * b.ldy + j, b.ldy, 0};
      run_tile<W, 1>(t, end - begin);
    }
}

template <class W>
void block_of(const LinearBlock& b) {
  if (b.m == 1) return single_row<W>(b);
  few_rows<W>(b);
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

const LinearTiles& linear_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
