#pragma once
// Per-target code of products of many rows: both sides are packed, so that a tile of outputs reads two streams, for
// any layout of its operands.
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// a [m, k] of f32: element (i, k) at data[i * ld + k], or transposed at data[k * ld + i].
struct GemmLeft {
  const float* data;
  int64_t ld;
  bool transposed;

  GemmLeft from(int64_t i, int64_t k) const {
    return {data + (transposed ? k * ld + i : i * ld + k), ld, transposed};
  }
};

/// b [k, n] of f32, bf16 or f16: element (k, j) is number k * ld + j, or transposed, like a Linear's w, j * ld + k.
struct GemmRight {
  const uint8_t* data;
  DType dtype;
  int64_t ld;
  bool transposed = false;

  GemmRight from(int64_t k, int64_t j) const {
    return {data + (transposed ? j * ld + k : k * ld + j) * dtype_bits(dtype) / 8, dtype, ld, transposed};
  }
};

/// y [m, n] (+)= a b of packed sides: k ascending, for any m and n; in f32 by fma, with the bits of matmul_tile.h.
/// Kernels that round multiply pairs of k of bf16 numbers.
struct GemmBlock {
  const std::byte* left;
  const std::byte* right;
  int64_t m, n, k;
  float* y;
  int64_t ldy;
  bool adds;         ///< to what y holds
  int64_t tall = 0;  ///< rows of y that a tile of the left side holds; 0: all that it can. For f32 only
  const std::byte* ahead = nullptr;  ///< a panel that is fetched: what is multiplied next; null: none. For f32 only
};

/// Rows of each tile so that m rows take as few tiles as possible, of equal height but for the last: 16 rows are 8 and 8.
constexpr int64_t equal_rows(int64_t m, int64_t most) {
  const int64_t tiles = (m + most - 1) / most;
  return tiles ? (m + tiles - 1) / tiles : 1;
}

/// The same with a left side that is not packed: row i of m <= rows at a + i ld. One panel of the right side: n <= columns.
struct GemmRows {
  const float* a;
  int64_t ld;
  const std::byte* right;
  int64_t m, n, k;
  float* y;
  int64_t ldy;
  bool adds;
  const std::byte* ahead =
      nullptr;  ///< of what is multiplied next, a cache line is fetched for each step of k; null: none
};

struct GemmTiles {
  int64_t rows, columns;  ///< of a tile
  /// Bytes of a packed side. Tiles of the left one, and panels of the right one, are contiguous.
  int64_t (*left_bytes)(int64_t m, int64_t k);
  int64_t (*right_bytes)(int64_t n, int64_t k);
  /// Packs at most `rows` rows; `to` is 64-byte aligned, like all packed memory.
  void (*pack_left)(const GemmLeft& a, int64_t m, int64_t k, std::byte* to);
  void (*pack_right)(const GemmRight& b, int64_t n, int64_t k, std::byte* to);
  void (*block)(const GemmBlock& block);
  /// Steps [0, count) of a packed left tile, from at most `rows` rows that lie anywhere (null: zeros): for products whose left side is
  /// gathered. Parts of a tile are packed in ascending order of their steps. Null where sides are rounded.
  void (*pack_rows)(const float* const* rows, int64_t m, int64_t count, float* to) = nullptr;
  void (*block_rows)(const GemmRows& block) = nullptr;
};

/// f32 arithmetic, for AVX2 and AVX-512.
const GemmTiles& f32_gemm_tiles(Isa isa);
/// Both sides rounded to bf16, by vdpbf16ps or AMX's tdpbf16ps, which must be usable; and the same loops with
/// emulated instructions that need only AVX-512, for tests. The right side is f32 or bf16.
const GemmTiles& bf16_gemm_tiles();
const GemmTiles& amx_gemm_tiles();
const GemmTiles& emulated_bf16_gemm_tiles();
const GemmTiles& emulated_amx_gemm_tiles();

inline const GemmTiles& gemm_tiles(Isa isa) {
  return isa == Isa::amx ? amx_gemm_tiles() : isa == Isa::avx512_bf16 ? bf16_gemm_tiles() : f32_gemm_tiles(isa);
}

}  // namespace plait::cpu
