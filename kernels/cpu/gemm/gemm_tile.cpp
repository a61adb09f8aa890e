#include "kernels/cpu/gemm/gemm_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm/gemm_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

// As in panel_tile.cpp: AVX-512 28 of 32 registers hold sums, two b; AVX2: 12 of 16, two b, one a.
constexpr int tile_rows = HWY_TARGET == HWY_AVX3 ? 14 : 6;
constexpr int64_t panel = 2 * L;

/// Floats of a packed tile of a: k steps of tile_rows, and the excess of the last whole vector.
int64_t left_stride(int64_t k) { return (k * tile_rows + 2 * L - 1) / L * L; }

int64_t left_bytes(int64_t m, int64_t k) { return (m + tile_rows - 1) / tile_rows * left_stride(k) * 4; }
int64_t right_bytes(int64_t n, int64_t k) { return (n + panel - 1) / panel * panel * k * 4; }

/// Missing rows are zeros. Each store writes a whole vector; the next overwrites what exceeds a step's rows.
void pack_left(const GemmLeft& a, int64_t m, int64_t k, std::byte* to) {
  auto* out = reinterpret_cast<float*>(to);
  if (a.transposed) {
    for (int64_t step = 0; step < k; ++step)
      hn::StoreU(load_up_to<AsF32>(bytes(a.data + step * a.ld), m), df, out + step * tile_rows);
    return;
  }
  for (int64_t step = 0; step < k; step += L) {
    const int64_t count = k - step;
    V v[L];
    for (int i = 0; i < L; ++i)
      v[i] = i < m ? load_up_to<AsF32>(bytes(a.data + i * a.ld + step), count) : hn::Zero(df);
    transpose(v);
    for (int c = 0; c < L && c < count; ++c) hn::StoreU(v[c], df, out + (step + c) * tile_rows);
  }
}

/// Step c of row i to to[c tile_rows + i]; a null row is zeros. The excess of the last vectors is written over what follows.
void pack_rows(const float* const* rows, int64_t m, int64_t count, float* to) {
  for (int64_t step = 0; step < count; step += L) {
    V v[L];
    for (int i = 0; i < L; ++i)
      v[i] = i < m && rows[i] ? load_up_to<AsF32>(bytes(rows[i] + step), count - step) : hn::Zero(df);
    transpose(v);
    for (int c = 0; c < L && c < count - step; ++c) hn::StoreU(v[c], df, to + (step + c) * tile_rows);
  }
}

template <class T>
void pack_panels(const GemmRight& b, int64_t n, int64_t k, float* to) {
  for (int64_t j = 0; j < n; j += panel, to += panel * k)
    for (int64_t step = 0; step < k; ++step) {
      const uint8_t* row = b.data + (step * b.ld + j) * T::size;
      hn::StoreU(load_up_to<T>(row, n - j), df, to + step * panel);
      hn::StoreU(n - j > L ? load_up_to<T>(row + L * T::size, n - j - L) : hn::Zero(df), df, to + step * panel + L);
    }
}

template <class T>
void pack_transposed(const GemmRight& b, int64_t n, int64_t k, float* to) {
  for (int64_t j = 0; j < (n + panel - 1) / panel * panel; j += L)
    for (int64_t step = 0; step < k; step += L) {
      V v[L];
      for (int64_t i = 0; i < L; ++i)
        v[i] = j + i < n ? load_up_to<T>(b.data + ((j + i) * b.ld + step) * T::size, k - step) : hn::Zero(df);
      transpose(v);
      float* out = to + j / panel * panel * k + j % panel;
      for (int64_t c = 0; c < L && step + c < k; ++c) hn::StoreU(v[c], df, out + (step + c) * panel);
    }
}

template <class T>
void pack_as(const GemmRight& b, int64_t n, int64_t k, float* to) {
  if (b.transposed) pack_transposed<T>(b, n, k, to);
  else pack_panels<T>(b, n, k, to);
}

void pack_right(const GemmRight& b, int64_t n, int64_t k, std::byte* to) {
  auto* out = reinterpret_cast<float*>(to);
  if (b.dtype == DType::bf16) pack_as<AsBF16>(b, n, k, out);
  else if (b.dtype == DType::f16) pack_as<AsF16>(b, n, k, out);
  else pack_as<AsF32>(b, n, k, out);
}

/// A tile of outputs; `partial`: of fewer columns than a panel has.
template <int ROWS, bool partial>
void run_tile(const float* a, const float* b, int64_t k, float* y, int64_t ldy, int64_t columns, bool adds,
              const std::byte* next) {
  V sums[ROWS][2];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const float* from = y + i * ldy + part * L;
      if (!adds) sums[i][part] = hn::Zero(df);
      else if constexpr (partial) sums[i][part] = load_up_to<AsF32>(bytes(from), columns - part * L);
      else sums[i][part] = hn::LoadU(df, from);
    }
  const auto* ahead = reinterpret_cast<const char*>(next ? next : reinterpret_cast<const std::byte*>(b));
  const int64_t line = next ? 64 : 0;
  for (int64_t step = 0; step < k; ++step, a += tile_rows, b += panel, ahead += line) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    const V b0 = hn::LoadU(df, b), b1 = hn::LoadU(df, b + L);
    for (int64_t byte = 0; byte < 8 * L; byte += 64)  // from L2, 8 steps ahead
      _mm_prefetch(reinterpret_cast<const char*>(b + 8 * panel) + byte, _MM_HINT_T0);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V one = hn::Set(df, a[i]);
      sums[i][0] = hn::MulAdd(one, b0, sums[i][0]);
      sums[i][1] = hn::MulAdd(one, b1, sums[i][1]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      float* to = y + i * ldy + part * L;
      if constexpr (partial) store_up_to<AsF32>(sums[i][part], bytes(to), columns - part * L);
      else hn::StoreU(sums[i][part], df, to);
    }
}

/// The same of at most L columns: one vector of sums a row, so no lanes of zeros are multiplied.
template <int ROWS>
void run_narrow(const float* a, const float* b, int64_t k, float* y, int64_t ldy, int64_t columns, bool adds) {
  V sums[ROWS];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i) sums[i] = adds ? load_up_to<AsF32>(bytes(y + i * ldy), columns) : hn::Zero(df);
  for (int64_t step = 0; step < k; ++step, a += tile_rows, b += panel) {
    const V one = hn::LoadU(df, b);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) sums[i] = hn::MulAdd(hn::Set(df, a[i]), one, sums[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i) store_up_to<AsF32>(sums[i], bytes(y + i * ldy), columns);
}

template <int ROWS>
void run_rows(int64_t rows, const float* a, const float* b, int64_t k, float* y, int64_t ldy, int64_t columns,
              bool adds, const std::byte* next) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return run_rows<ROWS - 1>(rows, a, b, k, y, ldy, columns, adds, next);
  if (columns <= L) run_narrow<ROWS>(a, b, k, y, ldy, columns, adds);
  else if (columns < panel) run_tile<ROWS, true>(a, b, k, y, ldy, columns, adds, next);
  else run_tile<ROWS, false>(a, b, k, y, ldy, columns, adds, next);
}

void block(const GemmBlock& g) {
  const auto *left = reinterpret_cast<const float*>(g.left), *right = reinterpret_cast<const float*>(g.right);
  const int64_t tall = g.tall ? g.tall : tile_rows;
  // The first tiles fetch what is next, a line a step each.
  const std::byte *next = g.ahead, *const end = next ? next + g.k * panel * 4 : nullptr;
  for (int64_t i = 0; i < g.m; i += tall, left += left_stride(g.k), next = next < end ? next + g.k * 64 : nullptr)
    for (int64_t j = 0; j < g.n; j += panel)
      run_rows<tile_rows>(g.m - i < tall ? g.m - i : tall, left, right + j * g.k, g.k, g.y + i * g.ldy + j, g.ldy,
                          g.n - j < panel ? g.n - j : panel, g.adds, next < end ? next : nullptr);
}

/// A tile of PARTS vectors a row. Three rows share a pointer: x86 addresses them as p, p + ld and p + 2 ld.
template <int ROWS, int PARTS>
void run_plain_rows(const GemmRows& g) {
  constexpr int pointers = (ROWS + 2) / 3;
  const float* p[pointers];
  for (int i = 0; i < pointers; ++i) p[i] = g.a + 3 * i * g.ld;
  const int64_t ld = g.ld;
  V sums[ROWS][PARTS];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < PARTS; ++part)
      sums[i][part] = g.adds ? load_up_to<AsF32>(bytes(g.y + i * g.ldy + part * L), g.n - part * L) : hn::Zero(df);
  const auto* b = reinterpret_cast<const float*>(g.right);
  const auto* ahead = reinterpret_cast<const char*>(g.ahead ? g.ahead : g.right);
  const int64_t line = g.ahead ? 64 : 0;
  for (int64_t step = 0; step < g.k; ++step, b += panel, ahead += line) {
    _mm_prefetch(ahead, _MM_HINT_T1);
    V columns[PARTS];
#pragma GCC unroll 2
    for (int part = 0; part < PARTS; ++part) columns[part] = hn::LoadU(df, b + part * L);
    for (int64_t byte = 0; byte < 8 * L; byte += 64)  // as in run_tile
      _mm_prefetch(reinterpret_cast<const char*>(b + 8 * panel) + byte, _MM_HINT_T0);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const V one = hn::Set(df, p[i / 3][i % 3 * ld]);
#pragma GCC unroll 2
      for (int part = 0; part < PARTS; ++part) sums[i][part] = hn::MulAdd(one, columns[part], sums[i][part]);
    }
#pragma GCC unroll 5
    for (int i = 0; i < pointers; ++i) ++p[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < PARTS; ++part)
      store_up_to<AsF32>(sums[i][part], bytes(g.y + i * g.ldy + part * L), g.n - part * L);
}

template <int ROWS>
void run_plain_rows(const GemmRows& g) {
  if constexpr (ROWS > 1)
    if (g.m < ROWS) return run_plain_rows<ROWS - 1>(g);
  if (g.n <= L) run_plain_rows<ROWS, 1>(g);
  else run_plain_rows<ROWS, 2>(g);
}

void block_rows(const GemmRows& g) { run_plain_rows<tile_rows>(g); }

constexpr GemmTiles tiles{tile_rows,  panel, left_bytes, right_bytes, pack_left,
                          pack_right, block, pack_rows,  block_rows};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const GemmTiles& f32_gemm_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
