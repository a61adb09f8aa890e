// Rounded dot products with vdpbf16ps: 16 lanes of pairs along k, 32 values of k per step, with lanes added at the
// end by one fixed tree. A packed group has its rows contiguous, with k zero-padded to a multiple of 32.
#include <cstring>

#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/simd/bf16_dot.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/linear/packed_tile.h"

namespace plait::cpu {
namespace {

constexpr int64_t step = 32;  ///< values of k per instruction
constexpr int most_rows = 6;  ///< 6 x 4 sums are 24 of 32 registers
constexpr int columns = 4;

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

/// Rows of x against COLUMNS rows of w.
template <class Op, int ROWS, int COLUMNS>
void dot_tile(const uint16_t* x, int64_t width, const uint8_t* w, int64_t k, float* y, int64_t ldy) {
  __m512 sums[ROWS][COLUMNS];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = _mm512_setzero_ps();
  auto add = [&](int64_t at, __mmask32 mask) {
    __m512i left[ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) left[i] = _mm512_loadu_si512(x + i * width + at);
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) {
      __m512i right = _mm512_maskz_loadu_epi16(mask, w + (j * k + at) * 2);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; ++i) sums[i][j] = Op::dot(sums[i][j], left[i], right);
    }
  };
  int64_t at = 0;
  for (; at + step <= k; at += step) add(at, 0xFFFFFFFFu);
  if (at < k) add(at, (__mmask32{1} << (k - at)) - 1);
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < COLUMNS; ++j) y[i * ldy + j] = _mm512_reduce_add_ps(sums[i][j]);
}

template <class Op, int COLUMNS>
void dot_rows(int64_t rows, const uint16_t* x, int64_t width, const uint8_t* w, int64_t k, float* y, int64_t ldy) {
  switch (rows) {
    case 1: return dot_tile<Op, 1, COLUMNS>(x, width, w, k, y, ldy);
    case 2: return dot_tile<Op, 2, COLUMNS>(x, width, w, k, y, ldy);
    case 3: return dot_tile<Op, 3, COLUMNS>(x, width, w, k, y, ldy);
    case 4: return dot_tile<Op, 4, COLUMNS>(x, width, w, k, y, ldy);
    case 5: return dot_tile<Op, 5, COLUMNS>(x, width, w, k, y, ldy);
    case 6: return dot_tile<Op, 6, COLUMNS>(x, width, w, k, y, ldy);
  }
}

template <class Op>
void dot_block(const PackedBlock& b) {
  const int64_t width = padded(b.k), tiles = (b.m + most_rows - 1) / most_rows;
  const auto* x = reinterpret_cast<const uint16_t*>(b.packed) + b.begin * width;
  for (int64_t j = 0; j < b.n;) {
    const bool wide = j + columns <= b.n;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = b.m * tile / tiles, rows = b.m * (tile + 1) / tiles - begin;
      const uint8_t* w = b.w + j * b.k * 2;
      float* y = b.y + begin * b.ldy + j;
      if (wide) dot_rows<Op, columns>(rows, x + begin * width, width, w, b.k, y, b.ldy);
      else dot_rows<Op, 1>(rows, x + begin * width, width, w, b.k, y, b.ldy);
    }
    j += wide ? columns : 1;
  }
}

PLAIT_END_AVX512_BF16

int64_t no_scratch(int64_t, int64_t, int64_t) { return 0; }

constexpr PackedTiles tiles_of(void (*block)(const PackedBlock&)) {
  return {4 * columns, rounded_group_of, rounded_bytes, pack_rows, no_scratch, block};
}
constexpr PackedTiles hardware = tiles_of(dot_block<Hardware>), emulated = tiles_of(dot_block<Emulated>);

}  // namespace

const PackedTiles& bf16_dot_tiles() { return hardware; }
const PackedTiles& emulated_bf16_dot_tiles() { return emulated; }

}  // namespace plait::cpu
