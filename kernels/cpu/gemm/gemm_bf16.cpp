// Packed products of bf16 numbers with vdpbf16ps: a step takes two values of k. A packed step is a pair of bf16
// numbers of each row, or column; both sides are rounded while they are packed.
#include <cstring>

#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/gemm/bf16_tile.h"
#include "kernels/cpu/gemm/gemm_tile.h"

namespace plait::cpu {
namespace {

constexpr int tile_rows = pair_rows;
constexpr int64_t lanes = pair_lanes, panel = pair_panel;

int64_t steps_of(int64_t k) { return (k + 1) / 2; }
int64_t left_stride(int64_t k) { return (steps_of(k) * tile_rows + 2 * lanes - 1) / lanes * lanes; }
int64_t left_bytes(int64_t m, int64_t k) { return (m + tile_rows - 1) / tile_rows * left_stride(k) * 4; }
int64_t right_bytes(int64_t n, int64_t k) { return (n + panel - 1) / panel * panel * steps_of(k) * 4; }

PLAIT_BEGIN_AVX512_BF16

/// Each store writes a whole vector; the next overwrites what exceeds a step's rows.
void pack_left(const GemmLeft& a, int64_t m, int64_t k, std::byte* to) {
  auto* out = reinterpret_cast<uint32_t*>(to);
  const auto* data = reinterpret_cast<const uint8_t*>(a.data);
  for (int64_t step = 0; a.transposed && step < steps_of(k); ++step)
    _mm512_storeu_si512(out + step * tile_rows, pair_at<Floats>(data, a.ld, step, k, m));
  if (a.transposed) return;
  for (int64_t step = 0; step < steps_of(k); step += lanes) {
    __m512 v[lanes];
    pairs_of_rows<Floats>(data, a.ld * Floats::size, m, k, step, v);
#pragma GCC unroll 16
    for (int64_t c = 0; c < lanes; ++c)
      if (step + c < steps_of(k)) _mm512_storeu_ps(out + (step + c) * tile_rows, v[c]);
  }
}

template <class T>
void pack_panels(const GemmRight& b, int64_t n, int64_t k, uint32_t* to) {
  for (int64_t j = 0; j < n; j += lanes) {
    uint32_t* out = to + j / panel * panel * steps_of(k) + j % panel;
    for (int64_t step = 0; step < steps_of(k); ++step)
      _mm512_storeu_si512(out + step * panel, pair_at<T>(b.data + j * T::size, b.ld, step, k, n - j));
  }
  if ((n + lanes - 1) / lanes % 2)  // the last panel's other half
    for (int64_t step = 0; step < steps_of(k); ++step)
      memset(to + n / panel * panel * steps_of(k) + step * panel + lanes, 0, 4 * lanes);
}

template <class T>
void pack_transposed(const GemmRight& b, int64_t n, int64_t k, uint32_t* to) {
  for (int64_t j = 0; j < (n + panel - 1) / panel * panel; j += lanes)
    for (int64_t step = 0; step < steps_of(k); step += lanes) {
      __m512 v[lanes];
      pairs_of_rows<T>(b.data + j * b.ld * T::size, b.ld * T::size, n - j, k, step, v);
      uint32_t* out = to + j / panel * panel * steps_of(k) + j % panel;
      for (int64_t c = 0; c < lanes && step + c < steps_of(k); ++c) _mm512_storeu_ps(out + (step + c) * panel, v[c]);
    }
}

template <class T>
void pack_as(const GemmRight& b, int64_t n, int64_t k, uint32_t* to) {
  if (b.transposed) pack_transposed<T>(b, n, k, to);
  else pack_panels<T>(b, n, k, to);
}

void pack_right(const GemmRight& b, int64_t n, int64_t k, std::byte* to) {
  auto* out = reinterpret_cast<uint32_t*>(to);
  if (b.dtype == DType::bf16) pack_as<Halves>(b, n, k, out);
  else pack_as<Floats>(b, n, k, out);
}

template <class Op, int ROWS>
void run_tile(const uint32_t* a, const uint32_t* b, int64_t steps, float* y, int64_t ldy, int64_t columns,
              bool adds) {
  const __mmask16 masks[2] = {mask_of(columns), mask_of(columns - lanes)};
  __m512 sums[ROWS][2];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part)
      sums[i][part] = adds ? _mm512_maskz_loadu_ps(masks[part], y + i * ldy + part * lanes) : _mm512_setzero_ps();
  add_products<Op, ROWS, tile_rows>(sums, a, b, steps);
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part)
      _mm512_mask_storeu_ps(y + i * ldy + part * lanes, masks[part], sums[i][part]);
}

template <class Op, int ROWS>
void run_rows(int64_t rows, const uint32_t* a, const uint32_t* b, int64_t steps, float* y, int64_t ldy,
              int64_t columns, bool adds) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return run_rows<Op, ROWS - 1>(rows, a, b, steps, y, ldy, columns, adds);
  run_tile<Op, ROWS>(a, b, steps, y, ldy, columns, adds);
}

template <class Op>
void block(const GemmBlock& g) {
  const auto *left = reinterpret_cast<const uint32_t*>(g.left), *right = reinterpret_cast<const uint32_t*>(g.right);
  const int64_t steps = steps_of(g.k);
  for (int64_t i = 0; i < g.m; i += tile_rows, left += left_stride(g.k))
    for (int64_t j = 0; j < g.n; j += panel)
      run_rows<Op, tile_rows>(g.m - i < tile_rows ? g.m - i : tile_rows, left, right + j * steps, steps,
                              g.y + i * g.ldy + j, g.ldy, g.n - j < panel ? g.n - j : panel, g.adds);
}

PLAIT_END_AVX512_BF16

constexpr GemmTiles tiles_of(void (*block)(const GemmBlock&)) {
  return {tile_rows, panel, left_bytes, right_bytes, pack_left, pack_right, block};
}
constexpr GemmTiles hardware = tiles_of(block<Hardware>), emulated = tiles_of(block<Emulated>);

}  // namespace

const GemmTiles& bf16_gemm_tiles() { return hardware; }
const GemmTiles& emulated_bf16_gemm_tiles() { return emulated; }

}  // namespace plait::cpu
