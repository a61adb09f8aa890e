#pragma once
// Per-target code of products of integers that fit into 16 bits: 8-bit numbers less their zero points.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

struct IntegerTiles {
  int64_t rows, columns;  ///< of a tile: 6 x 16 for AVX2, 12 x 32 for AVX-512
  /// sums [rows, columns] of i32, which wrap, = left right, over `pairs` pairs of k: left [pairs, rows] has two i16 in each element,
  /// right is [pairs, columns, 2]. Only the first `count` rows are made.
  void (*multiply)(const int32_t* left, const int16_t* right, int64_t pairs, int64_t count, int32_t* sums);
};

const IntegerTiles& integer_tiles(Isa isa);

}  // namespace plait::cpu
