#pragma once
// Linears whose x is packed once per call, in groups of rows, before any block is computed: many rows of f32
// (panels), and the instructions that multiply pairs of bf16 numbers, vdpbf16ps (AVX512_BF16) and tdpbf16ps (AMX),
// which round x.
#include <cstddef>
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/linear/blocked_tile.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// y[i, j] = sum over k of x[i, k] w[j, k] in f32, for rows [begin, begin + m) and j < n. `begin` is a multiple of
/// `group`. The order of operations for one y[i, j] depends only on k.
struct PackedBlock {
  const std::byte* packed;  ///< all rows of x, made by `pack`
  int64_t group;            ///< as it was packed
  int64_t begin, m;
  const uint8_t* w;  ///< row j at w + j * k elements, any alignment
  DType dtype;       ///< of w
  int64_t n, k;
  float* y;  ///< of row `begin`; row i at y + i * ldy
  int64_t ldy;
  float* scratch;        ///< `scratch` floats, 64-byte aligned
  const uint8_t* ahead;  ///< the likely next rows of w, for prefetching; null: none
  /// If set, w is rows [first, first + n) of this, k is its padded length and x was arranged. Only for panels.
  const BlockedWeight* blocked = nullptr;
  int64_t first = 0;
  float* rows = nullptr;  ///< blocked_scratch floats
};

struct PackedTiles {
  int64_t columns;  ///< blocks of a multiple of so many rows of w waste nothing
  /// Number of rows of m that are packed together.
  int64_t (*group)(int64_t m);
  /// Bytes of m packed rows.
  int64_t (*bytes)(int64_t m, int64_t k);
  /// Packs group `index` of x [m, k]: rows [index * group(m), (index + 1) * group(m)) as far as they exist.
  void (*pack)(const float* x, int64_t m, int64_t k, int64_t index, std::byte* packed);
  /// Floats of scratch for blocks of up to n rows of w, where m rows of x were packed.
  int64_t (*scratch)(int64_t m, int64_t n, int64_t k);
  void (*block)(const PackedBlock& block);
};

/// Floats that panels need to unpack rows of quantised weights.
inline int64_t blocked_scratch(const BlockedWeight& w) { return code_group * w.padded() + dot_scratch(w.blocks); }

/// f32 arithmetic on weights in f32, bf16 or f16, with the bits of linear_tile.h: for AVX2 and AVX-512.
const PackedTiles& panel_tiles(Isa isa);

/// x and w in bf16. The instructions themselves, which must be usable.
const PackedTiles& bf16_tiles();
const PackedTiles& amx_tiles();
/// The same loops with emulated instructions, for tests on other processors (the first needs AVX-512). The last bits
/// may differ from the hardware's, which flushes subnormal numbers.
const PackedTiles& emulated_bf16_tiles();
const PackedTiles& emulated_amx_tiles();

/// Groups of AMX's tiles (their columns) and of rounded dot products, packed as a whole, k rounded up to a multiple
/// of 32.
constexpr int64_t rounded_group = 16;
constexpr int64_t rounded_group_of(int64_t) { return rounded_group; }
constexpr int64_t rounded_bytes(int64_t m, int64_t k) {
  return (m + rounded_group - 1) / rounded_group * rounded_group * ((k + 31) / 32 * 32) * 2;
}

inline const PackedTiles& packed_tiles(Isa isa) {
  return isa == Isa::amx ? amx_tiles() : isa == Isa::avx512_bf16 ? bf16_tiles() : panel_tiles(isa);
}

}  // namespace plait::cpu
