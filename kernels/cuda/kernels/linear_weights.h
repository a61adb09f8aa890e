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

PLAIT_DEVICE Fragment fragment(const uint4& w) { return {{w.x, w.y, w.z, w.w}}; }

/// sums += a half of a unit; b: 8 elements of x, b0 and b1 of both halves.
PLAIT_DEVICE void multiply_half(Sums& sums, const uint4& w, const uint4& b, int half, bool f16) {
  const uint32_t b0 = half ? b.z : b.x, b1 = half ? b.w : b.y;
  if (f16) mma_f16(sums, fragment(w), b0, b1);
  else mma_bf16(sums, fragment(w), b0, b1);
}
/// The product of the first half.
PLAIT_DEVICE Sums product(const uint4& w, const uint4& b, bool f16) {
  return f16 ? product_f16(fragment(w), b.x, b.y) : product_bf16(fragment(w), b.x, b.y);
}

/// Weights of 16 bits, of which a chunk takes `loads` loads of 16 bytes; `parts`: numbers that x is the sum of.
template <bool is_f16, int parts_of_x>
struct PlainWeights {
  static constexpr int loads = 2 * chunk_units, parts = parts_of_x;
  static PLAIT_DEVICE void multiply_unit(Sums& sums, const uint4* w, int i, const uint4* x, const LinearOperands&,
                                         int, int, int) {
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int half = 0; half < 2; ++half) multiply_half(sums, w[2 * i + half], x[part], half, is_f16);
  }
};

/// Weights in blocks: (code - zero) scale. `Codes` makes fragments of offset + code, exact in f16: codes are the low bits of 1024, which
/// count ones. x is rounded to f16, 2^-12 of it at most. What offset and zero add to the sum is taken off by a product with a constant if
/// the zero is one, which costs the tensor core what it has to spare; or by the sums of x.
template <class Codes, bool has_zeros>
struct BlockWeights {
  static constexpr int loads = Codes::loads, parts = 1;
  static constexpr bool is_f16 = true;
  static constexpr float offset = 1024;
  /// `i`: the unit in its chunk.
  static PLAIT_DEVICE void multiply_unit(Sums& sums, const uint4* w, int i, const uint4* x, const LinearOperands& o,
                                         int unit, int tile, int lane) {
    const uint4 halves[2] = {Codes::half(w, i, 0), Codes::half(w, i, 1)};
    Sums codes;
    if (has_zeros) {
      codes = product(halves[0], x[0], is_f16);
    } else {
      const uint32_t two = pack_f16(-offset - o.zero, -offset - o.zero);
      const uint4 constant{two, two, two, two};
      codes = product(constant, x[0], is_f16);
      multiply_half(codes, constant, x[0], 1, is_f16);
      multiply_half(codes, halves[0], x[0], 0, is_f16);
    }
    multiply_half(codes, halves[1], x[0], 1, is_f16);
    const int64_t strip = static_cast<int64_t>(blockIdx.x) * o.blocks * 8 + lane / 4;
    const int at =
        (((unit - i) >> o.block_shift) + (i >> o.block_shift)) * 8;  // unit >> block_shift, mostly once a chunk
    const float2* const scales = static_cast<const float2*>(o.scales) + strip;
    const float2 scale = scales[at];
    if (has_zeros) {
      const float2* const zeros = static_cast<const float2*>(o.zeros) + strip;
      const float2 zero = zeros[at];
      const float2 of_x = *reinterpret_cast<const float2*>(
          o.column_sums + (static_cast<int64_t>(tile) * o.units + unit) * tile_tokens + lane % 4 * 2);
      codes.c[0] -= (offset + zero.x) * of_x.x, codes.c[1] -= (offset + zero.x) * of_x.y;
      codes.c[2] -= (offset + zero.y) * of_x.x, codes.c[3] -= (offset + zero.y) * of_x.y;
    }
    sums.c[0] += scale.x * codes.c[0], sums.c[1] += scale.x * codes.c[1];
    sums.c[2] += scale.y * codes.c[2], sums.c[3] += scale.y * codes.c[3];
  }
};

/// Codes of 0 to 255.
struct Int8Codes {
  static constexpr int loads = chunk_units;
  static PLAIT_DEVICE uint4 half(const uint4* w, int i, int half) {
    constexpr uint32_t high = 0x64646464U;
    const uint32_t a = half ? w[i].z : w[i].x, b = half ? w[i].w : w[i].y;
    return {permute_bytes(a, high, 0x4240), permute_bytes(a, high, 0x4341), permute_bytes(b, high, 0x4240),
            permute_bytes(b, high, 0x4341)};
  }
};

/// Codes of 0 to 15.
struct Int4Codes {
  static constexpr int loads = chunk_units / 2;
  static PLAIT_DEVICE uint32_t two(uint32_t codes) { return and_or(codes, 0x000f000fU, 0x64006400U); }
  static PLAIT_DEVICE uint4 half(const uint4* w, int i, int half) {
    const uint4& pair = w[i / 2];
    const uint32_t codes = i % 2 ? (half ? pair.w : pair.z) : (half ? pair.y : pair.x);
    return {two(codes), two(codes >> 4), two(codes >> 8), two(codes >> 12)};
  }
};

}  // namespace plait::cuda
