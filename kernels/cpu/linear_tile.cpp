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
/// k is cut so that the tile's rows of x (6 x 4 KB, 24 KB of 32 KB L1) stay in L1 while rows of w pass by.
constexpr int64_t k_block = 1024;
/// Up to this many rows of x, rows of w in 16 bits are converted in registers, once for each tile, beyond it once for
/// all tiles (a load and a store more). Either is exact.
constexpr int64_t most_few_rows = 2 * tile_rows;

/// A tile of ROWS x COLUMNS outputs over k in [begin, end).
struct Tile {
  const float* x;
  int64_t ldx;
  const uint8_t* w;
  int64_t w_stride;   ///< bytes between rows of w
  int64_t begin, end;
  const float* from;  ///< sums so far, L lanes for each output; null: zeros
  float* to;          ///< where sums go that are not complete; null: they are, and go to y
  float* y;
  int64_t ldy;
  int64_t ahead;      ///< bytes from a row of w to what the next tile will read: fetched meanwhile; 0: nothing
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

/// One row of x: memory decides, w is read front to back.
template <class W>
void single_row(const LinearBlock& b) {
  Tile t{b.x, b.ldx, b.w, b.k * W::size, 0, b.k, nullptr, nullptr, b.y, b.ldy, 0};
  int64_t j = 0;
  for (; j + single_row_columns <= b.n; j += single_row_columns, t.y += single_row_columns) {
    t.w = b.w + j * t.w_stride;
    t.ahead = single_row_columns * t.w_stride;
    run_tile<W, 1, single_row_columns>(t);
  }
  t.ahead = 0;
  for (; j < b.n; ++j, ++t.y) {
    t.w = b.w + j * t.w_stride;
    run_tile<W, 1, 1>(t);
  }
}

/// Few rows of x: each tile of w is read from memory once, and again from L1 for further rows.
template <class W>
void few_rows(const LinearBlock& b) {
  int64_t tiles = (b.m + tile_rows - 1) / tile_rows;
  for (int64_t j = 0; j < b.n;) {
    bool wide = j + tile_columns <= b.n;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      int64_t begin = b.m * tile / tiles, end = b.m * (tile + 1) / tiles;
      int64_t stride = b.k * W::size;
      Tile t{b.x + begin * b.ldx, b.ldx, b.w + j * stride, stride, 0, b.k, nullptr, nullptr,
             b.y + begin * b.ldy + j, b.ldy, tile == 0 && wide ? tile_columns * stride : 0};
      if (wide) run_tile<W, tile_columns>(t, end - begin);
      else run_tile<W, 1>(t, end - begin);
    }
    j += wide ? tile_columns : 1;
  }
}

/// Many rows of x against a block of f32 rows of w that fits L2. `sums`: tile_rows * n * L floats.
void many_rows(const LinearBlock& b, const uint8_t* w, float* sums) {
  int64_t tiles = (b.m + tile_rows - 1) / tile_rows, stride = b.k * AsF32::size;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    int64_t begin = b.m * tile / tiles, end = b.m * (tile + 1) / tiles;
    for (int64_t k = 0; k < b.k; k += k_block) {
      bool last = k + k_block >= b.k;
      for (int64_t j = 0; j < b.n;) {
        bool wide = j + tile_columns <= b.n;
        float* lanes = sums + j * tile_rows * L;
        Tile t{b.x + begin * b.ldx, b.ldx, w + j * stride, stride, k, last ? b.k : k + k_block,
               k ? lanes : nullptr, last ? nullptr : lanes, b.y + begin * b.ldy + j, b.ldy, 0};
        if (wide) run_tile<AsF32, tile_columns>(t, end - begin);
        else run_tile<AsF32, 1>(t, end - begin);
        j += wide ? tile_columns : 1;
      }
    }
  }
}

template <class W>
void convert(const uint8_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += L)
    store_up_to<AsF32>(load_up_to<W>(from + i * W::size, count - i), bytes(to + i), count - i);
}

template <class W>
void block_of(const LinearBlock& b) {
  if (b.m == 1) return single_row<W>(b);
  if (b.m <= (W::size == AsF32::size ? tile_rows : most_few_rows)) return few_rows<W>(b);
  float* rows = b.scratch;
  float* sums = b.scratch + (b.n * b.k + 15) / 16 * 16;
  if constexpr (W::size != AsF32::size) {
    convert<W>(b.w, b.n * b.k, rows);
    many_rows(b, bytes(rows), sums);
  } else {
    many_rows(b, b.w, sums);
  }
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
  return (n * k + 15) / 16 * 16 + n * most_rows * most_lanes;
}

}  // namespace plait::cpu
#endif
