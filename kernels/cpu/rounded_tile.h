#pragma once
// Dot products whose left side is rounded to bf16: for the instructions that multiply pairs of bf16 numbers,
// vdpbf16ps (AVX512_BF16) and tdpbf16ps (AMX). Weights are read in place, rows of k bf16 numbers; x is packed once a
// call.
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/isa.h"

namespace plait::cpu {

/// Rows of x come in groups of 16 (AMX's columns; a group is packed as a whole).
constexpr int64_t rounded_group = 16;

/// y[i, j] = sum over k of bf16(x[i, k]) w[j, k] in f32, for rows [begin, begin + m) and j < n. `begin` is a multiple
/// of rounded_group. The order of operations for one y[i, j] depends on k alone.
struct RoundedBlock {
  const std::byte* packed;  ///< all rows of x, made by `pack`
  int64_t begin, m;
  const uint8_t* w;         ///< row j at w + j * 2 k, any alignment
  int64_t n, k;
  float* y;                 ///< of row `begin`; row i at y + i * ldy
  int64_t ldy;
};

struct RoundedTiles {
  /// Packs group `group` of x [m, k]: rows [16 group, 16 group + 16), zeros beyond m.
  void (*pack)(const float* x, int64_t m, int64_t k, int64_t group, std::byte* packed);
  void (*block)(const RoundedBlock& block);
};

/// Bytes of m packed rows: m' * k' * 2 with m' and k' rounded up to multiples of 16 and 32.
constexpr int64_t rounded_bytes(int64_t m, int64_t k) {
  return (m + rounded_group - 1) / rounded_group * rounded_group * ((k + 31) / 32 * 32) * 2;
}

/// The instructions themselves, which must be usable.
const RoundedTiles& bf16_dot_tiles();
const RoundedTiles& amx_tiles();
/// The same loops over stand-ins of the instructions, for tests on other processors (the first needs AVX-512). The
/// last bits may differ from the hardware's where that flushes subnormal numbers.
const RoundedTiles& emulated_bf16_dot_tiles();
const RoundedTiles& emulated_amx_tiles();

inline const RoundedTiles& rounded_tiles(Isa isa) { return isa == Isa::amx ? amx_tiles() : bf16_dot_tiles(); }

}  // namespace plait::cpu
