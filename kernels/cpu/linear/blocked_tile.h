#pragma once
// Per-target code of the linear kernels for weights quantised in blocks: dot products that read the packed codes, and
// rows unpacked to f32 for tiles of many rows of x.
//
// Both compute (code - zero) * scale, rounded after each operation, and both take k in the order of `arrange`, the
// order in which vectors of codes are unpacked. A dot product in that order follows linear_tile.h: so a row has the
// same bits in any batch.
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Codes are loaded in groups of this size.
constexpr int64_t code_group = 16;

/// [n, blocks, length] codes of 2, 4 or 8 bits. All pointers may have any alignment.
struct BlockedWeight {
  const uint8_t* codes = nullptr;
  DType dtype = DType::none;
  int64_t n = 0, blocks = 0, length = 0;
  const uint8_t* scales = nullptr;  ///< [n, blocks]
  DType scale_dtype = DType::none;  ///< f32, f16 or bf16
  const uint8_t* zeros = nullptr;   ///< [n, blocks], or null: `zero` for all
  DType zero_dtype = DType::none;   ///< f32, f16, bf16, u8 or i8
  float zero = 0;

  int bits() const { return dtype_bits(dtype); }
  /// Whether groups are within one block and rows begin at bytes. Otherwise rows are unpacked one by one, slowly.
  bool grouped() const { return length % code_group == 0 || (blocks == 1 && length * bits() % 8 == 0); }
  /// Elements of a row of x for this weight: k, zero-padded to whole groups.
  int64_t padded() const { return (blocks * length + code_group - 1) / code_group * code_group; }
  /// Whether `arrange` changes the order.
  bool interleaved() const { return grouped() && bits() == 4; }
};

/// y[i, j] = x[i] . w[begin + j], for i < m and j < n. At most `most_dot_rows` rows of x, arranged.
struct BlockedDot {
  const float* x;  ///< row i at x + i * padded()
  int64_t m;
  const BlockedWeight& w;  ///< grouped
  int64_t begin, n;
  float* y;
  int64_t ldy;
  float* scratch;  ///< dot_scratch(blocks) floats
};

/// Rows of w in flight: sums of one row of x are four independent chains of fma, since each step takes 7 cycles, and
/// four read memory faster than eight (13.4 against 12 weights per nanosecond of 4 bits on one core that reads 10.4
/// GB/s).
constexpr int dot_streams = 4;
constexpr int64_t dot_scratch(int64_t blocks) { return 2 * dot_streams * blocks + code_group; }

struct BlockedTiles {
  int64_t most_dot_rows;
  /// k elements of x in the order of w's codes, zero-padded; and back.
  void (*arrange)(const float* x, int64_t k, const BlockedWeight& w, float* to);
  void (*restore)(const float* from, int64_t k, const BlockedWeight& w, float* x);
  void (*dot)(const BlockedDot& dot);
  /// Rows [begin, begin + n) to `to`, padded() floats each, arranged. Needs dot_scratch(blocks) floats.
  void (*unpack)(const BlockedWeight& w, int64_t begin, int64_t n, float* to, float* scratch);
};

const BlockedTiles& blocked_tiles(Isa isa);

}  // namespace plait::cpu
