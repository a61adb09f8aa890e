// Products of codes by vpdpbusd: four of unsigned and signed 8-bit numbers a lane.
#include "kernels/cpu/linear/integer_tile.h"

#include <cstring>

#include "kernels/cpu/simd/avx512_bf16.h"

namespace plait::cpu {
namespace {

constexpr int64_t rows = 12, columns = 32, depth = 4;
constexpr uint32_t upper_bits = 0x80808080U;

PLAIT_BEGIN_AVX512_VNNI

/// The sum of the numbers, and units of them `stride` apart.
int32_t pack_units(const uint8_t* codes, int64_t k, bool is_signed, int64_t steps, int32_t* units, int64_t stride) {
  const uint32_t turned = is_signed ? 0 : upper_bits;
  __m512i all = _mm512_setzero_si512();  // of unsigned numbers
  const __m512i to_unsigned = _mm512_set1_epi32(is_signed ? static_cast<int>(upper_bits) : 0);
  int64_t i = 0;
  for (; i + 64 <= k; i += 64)
    all = _mm512_add_epi64(
        all, _mm512_sad_epu8(_mm512_xor_si512(_mm512_loadu_si512(codes + i), to_unsigned), _mm512_setzero_si512()));
  auto total = static_cast<int32_t>(_mm512_reduce_add_epi64(all));
  for (; i < k; ++i) total += codes[i] ^ (is_signed ? 0x80 : 0);
  for (int64_t p = 0; p < steps; ++p, units += stride) {
    uint32_t four = 0;
    const int64_t left = k - p * depth;
    if (left >= depth) memcpy(&four, codes + p * depth, 4);
    else if (left > 0) memcpy(&four, codes + p * depth, static_cast<size_t>(left));
    four ^= turned;
    if (left < depth) four &= left > 0 ? (1U << 8 * left) - 1 : 0;
    *units = static_cast<int32_t>(four);
  }
  return total - 128 * static_cast<int32_t>(k);
}

void pack_left(const uint8_t* codes, int64_t k, bool is_signed, int64_t row, int64_t steps, int32_t* tile,
               int32_t* sum) {
  *sum = pack_units(codes, k, is_signed, steps, tile + row, rows);
}
void pack_right(const uint8_t* const* codes, bool is_signed, int32_t* units, int32_t* sums) {
  const __m256i turned = _mm256_set1_epi32(is_signed ? static_cast<int>(upper_bits) : 0);
  __m256i line[depth];
  for (int i = 0; i < depth; ++i)
    line[i] = _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes[i])), turned);
  // Bytes of four lines together, in the lower and the upper half of each block of 16 columns.
  const __m256i low = _mm256_unpacklo_epi8(line[0], line[1]), high = _mm256_unpackhi_epi8(line[0], line[1]);
  const __m256i low2 = _mm256_unpacklo_epi8(line[2], line[3]), high2 = _mm256_unpackhi_epi8(line[2], line[3]);
  const __m256i part[4] = {_mm256_unpacklo_epi16(low, low2), _mm256_unpackhi_epi16(low, low2),
                           _mm256_unpacklo_epi16(high, high2), _mm256_unpackhi_epi16(high, high2)};
  auto* to = reinterpret_cast<__m128i*>(units);
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(to + i, _mm256_castsi256_si128(part[i]));
    _mm_storeu_si128(to + 4 + i, _mm256_extracti128_si256(part[i], 1));
  }
  if (!sums) return;
  for (int64_t j = 0; j < columns; j += 16)
    _mm512_storeu_si512(sums + j, _mm512_dpbusd_epi32(_mm512_loadu_si512(sums + j), _mm512_loadu_si512(units + j),
                                                      _mm512_set1_epi8(1)));
}

/// The units of a step are `row` apart, those of a row `next`.
template <int R>
void tile(const int32_t* left, int64_t row, int64_t next, const int32_t* right, int64_t steps, int32_t* sums) {
  __m512i own[R][2];
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) own[i][0] = own[i][1] = _mm512_setzero_si512();
  for (int64_t p = 0; p < steps; ++p, left += next, right += columns) {
    const __m512i first = _mm512_loadu_si512(right), second = _mm512_loadu_si512(right + 16);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i) {
      const __m512i a = _mm512_set1_epi32(left[i * row]);
      own[i][0] = _mm512_dpbusd_epi32(own[i][0], first, a);
      own[i][1] = _mm512_dpbusd_epi32(own[i][1], second, a);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
    _mm512_storeu_si512(sums + i * columns, own[i][0]);
    _mm512_storeu_si512(sums + i * columns + 16, own[i][1]);
  }
}

void multiply(const int32_t* left, const int32_t* right, int64_t, int64_t begin, int64_t count, int64_t made,
              int32_t* sums) {
  left += begin * rows;
  right += begin * columns;
  if (made == 1) tile<1>(left, 1, rows, right, count, sums);
  else if (made <= 4) tile<4>(left, 1, rows, right, count, sums);
  else tile<rows>(left, 1, rows, right, count, sums);
}

PLAIT_END_AVX512_VNNI

}  // namespace

IntegerTiles vnni_tiles(IntegerTiles pairs) {
  pairs.depth = depth;
  pairs.pack_left = pack_left;
  pairs.pack_right = pack_right;
  pairs.multiply = multiply;
  return pairs;
}

PLAIT_BEGIN_AVX512_VNNI

void pack_quad_row(const uint8_t* codes, int64_t k, bool is_signed, int64_t row, int64_t steps, int32_t* tile,
                   int32_t* sum) {
  *sum = pack_units(codes, k, is_signed, steps, tile + row * steps, 1);
}

void multiply_quad_rows(const int32_t* left, const int32_t* right, int64_t steps, int64_t begin, int64_t count,
                        int64_t made, int32_t* sums) {
  left += begin;
  right += begin * columns;
  if (made == 1) tile<1>(left, steps, 1, right, count, sums);
  else tile<4>(left, steps, 1, right, count, sums);
}

PLAIT_END_AVX512_VNNI

}  // namespace plait::cpu
