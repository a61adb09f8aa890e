#pragma once
// Per-target code of products of 8-bit codes with exact sums. Zero points are taken out of the sums: of (a - za) (b - zb) over k it is
// a b - za sum(b) - zb (sum(a) - k za).
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Numbers as products take them: two of 16 bits in a unit of 4 bytes, codes as they are; or four of 8 bits, signed on the left and
/// unsigned on the right (VNNI), where codes of the other kind have their upper bit turned.
struct IntegerTiles {
  static constexpr int64_t most_rows = 32, most_columns = 32;
  int64_t rows, columns;  ///< of a tile
  int64_t depth;          ///< numbers of a unit
  int64_t steps_grain;    ///< units of a row are a multiple of this

  /// What is added to a code, and so to its zero point.
  int32_t left_shift(bool is_signed) const { return depth == 4 && !is_signed ? -128 : 0; }
  int32_t right_shift(bool is_signed) const { return depth == 4 && is_signed ? 128 : 0; }
  /// Units of k numbers.
  int64_t steps(int64_t k) const {
    const int64_t numbers = depth * steps_grain;
    return (k + numbers - 1) / numbers * steps_grain;
  }

  /// Row `row` of a tile, of k codes: its units and the sum of its numbers. Units are [steps, rows], or with AMX [rows, steps].
  void (*pack_left)(const uint8_t* codes, int64_t k, bool is_signed, int64_t row, int64_t steps, int32_t* tile,
                    int32_t* sum);
  /// One step of a panel: `units` [columns] of `depth` rows with `columns` codes each. Adds their numbers to `sums` [columns], if not null.
  void (*pack_right)(const uint8_t* const* codes, bool is_signed, int32_t* units, int32_t* sums);
  /// sums [rows, columns], which wrap, = left right [steps, columns], over `count` steps from `begin` on. Only the first `rows` are made.
  void (*multiply)(const int32_t* left, const int32_t* right, int64_t steps, int64_t begin, int64_t count,
                   int64_t rows, int32_t* sums);
  /// sums[j] -= left_zero right_sums[j] + right_zeros[j] rest. `right_sums` is not read where left_zero is 0.
  void (*correct)(int32_t left_zero, const int32_t* right_sums, const int32_t* right_zeros, int32_t rest,
                  int32_t* sums);
};

/// Those of the set, which has some of its own: avx2, avx512, avx512_bf16 (with VNNI), amx.
const IntegerTiles& integer_tiles(Isa isa);

// Products of four codes at a time: what is made of the tiles of AVX-512.
/// By VNNI; the rest as `pairs`, of AVX-512.
IntegerTiles vnni_tiles(IntegerTiles pairs);
/// By AMX, or by its emulation for tests; the rest as `quads`, of VNNI.
IntegerTiles amx_tiles(IntegerTiles quads, bool emulated = false);

/// For AMX, by VNNI: a row of a tile [rows, steps], and products of up to four rows.
void pack_quad_row(const uint8_t* codes, int64_t k, bool is_signed, int64_t row, int64_t steps, int32_t* tile,
                   int32_t* sum);
void multiply_quad_rows(const int32_t* left, const int32_t* right, int64_t steps, int64_t begin, int64_t count,
                        int64_t rows, int32_t* sums);

}  // namespace plait::cpu
