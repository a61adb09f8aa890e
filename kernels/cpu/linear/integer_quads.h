#pragma once
// Products of four codes at a time: what is made of the tiles of AVX-512.
#include "kernels/cpu/linear/integer_tile.h"

namespace plait::cpu {

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
