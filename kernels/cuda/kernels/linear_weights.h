#pragma once
// Packed weights as fragments, multiplied with the columns of a unit.
#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

/// Where an element is: the inverse of row_of and k_of (linear.h).
struct WeightPlace {
  int lane, half, r, e;
};
PLAIT_DEVICE WeightPlace place_of(int row, int k) {
  return {row % 8 * 4 + k / 8, k % 8 / 4, k % 4 / 2 * 2 + row / 8, k % 2};
}

/// b0 and b1 of both halves: 8 elements of x.
PLAIT_DEVICE void multiply(Sums& sums, const uint4* halves, const uint4& b, bool f16) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Fragment a{{halves[half].x, halves[half].y, halves[half].z, halves[half].w}};
    const uint32_t b0 = half ? b.z : b.x, b1 = half ? b.w : b.y;
    if (f16) mma_f16(sums, a, b0, b1);
    else mma_bf16(sums, a, b0, b1);
  }
}

/// Weights of 16 bits, of which a chunk takes `loads` loads of 16 bytes; `parts`: numbers that x is the sum of.
template <bool is_f16, int parts_of_x>
struct PlainWeights {
  static constexpr int loads = 2 * chunk_units, parts = parts_of_x;
  static PLAIT_DEVICE void multiply_unit(Sums& sums, const uint4* w, int i, const uint4* x, const LinearOperands&,
                                         int, int, int) {
#pragma unroll
    for (int part = 0; part < parts; ++part) multiply(sums, w + 2 * i, x[part], is_f16);
  }
};

/// Weights in blocks: (code - zero) scale. Codes are exact in bf16, x is rounded to it. `Codes` makes fragments of offset + code. What
/// offset and zero add to the sum is taken off by a product with a constant if the zero is one, which costs the tensor core what it has to
/// spare; or by the sums of x.
template <class Codes, bool has_zeros>
struct BlockWeights {
  static constexpr int loads = Codes::loads, parts = 1;
  /// `i`: the unit in its chunk.
  static PLAIT_DEVICE void multiply_unit(Sums& sums, const uint4* w, int i, const uint4* x, const LinearOperands& o,
                                         int unit, int tile, int lane) {
    Sums codes{{0, 0, 0, 0}};
    if (!has_zeros) {
      const uint32_t two = pack_bf16(-Codes::offset - o.zero, -Codes::offset - o.zero);
      const uint4 constant[2] = {{two, two, two, two}, {two, two, two, two}};
      multiply(codes, constant, x[0], false);
    }
    const uint4 halves[2] = {Codes::half(w, i, 0), Codes::half(w, i, 1)};
    multiply(codes, halves, x[0], false);
    const int64_t strip = static_cast<int64_t>(blockIdx.x) * o.blocks * 8 + lane / 4;
    const int at = (unit >> o.block_shift) * 8;
    const float2 scale = static_cast<const float2*>(o.scales)[strip + at];
    if (has_zeros) {
      const float2 zero = static_cast<const float2*>(o.zeros)[strip + at];
      const float2 of_x = *reinterpret_cast<const float2*>(
          o.column_sums + (static_cast<int64_t>(tile) * o.units + unit) * tile_tokens + lane % 4 * 2);
      codes.c[0] -= (Codes::offset + zero.x) * of_x.x, codes.c[1] -= (Codes::offset + zero.x) * of_x.y;
      codes.c[2] -= (Codes::offset + zero.y) * of_x.x, codes.c[3] -= (Codes::offset + zero.y) * of_x.y;
    }
    sums.c[0] += scale.x * codes.c[0], sums.c[1] += scale.x * codes.c[1];
    sums.c[2] += scale.y * codes.c[2], sums.c[3] += scale.y * codes.c[3];
  }
};

/// Codes of -128 to 127: the low seven bits of a bf16 of 128, or 256, count ones.
struct Int8Codes {
  static constexpr int loads = chunk_units;
  static constexpr float offset = 0;
  static PLAIT_DEVICE uint32_t two(uint32_t bytes) {
    return subtract_bf16(and_or(bytes, 0x007f007fU, 0x43004300U), and_or(bytes, 0x00800080U, 0x43004300U));
  }
  static PLAIT_DEVICE uint4 half(const uint4* w, int i, int half) {
    const uint32_t a = half ? w[i].z : w[i].x, b = half ? w[i].w : w[i].y;
    return {two(a), two(a >> 8), two(b), two(b >> 8)};
  }
};

/// Codes of 0 to 15.
struct Int4Codes {
  static constexpr int loads = chunk_units / 2;
  static constexpr float offset = 128;
  static PLAIT_DEVICE uint32_t two(uint32_t codes) { return and_or(codes, 0x000f000fU, 0x43004300U); }
  static PLAIT_DEVICE uint4 half(const uint4* w, int i, int half) {
    const uint4& pair = w[i / 2];
    const uint32_t codes = i % 2 ? (half ? pair.w : pair.z) : (half ? pair.y : pair.x);
    return {two(codes), two(codes >> 4), two(codes >> 8), two(codes >> 12)};
  }
};

}  // namespace plait::cuda
