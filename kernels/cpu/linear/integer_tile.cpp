#include "kernels/cpu/linear/integer_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/integer_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

using I = hn::Vec<DI>;
constexpr int64_t rows = L == 16 ? 12 : 6, columns = 2 * L;

/// The sum of both products of each pair of i16: exact, since 2 x 255 x 255 is far from 31 bits.
HWY_INLINE I pairs_of(I a, I b) {
#if HWY_TARGET == HWY_AVX3
  return I{_mm512_madd_epi16(a.raw, b.raw)};
#else
  return I{_mm256_madd_epi16(a.raw, b.raw)};
#endif
}

void pack_left(const uint8_t* codes, int64_t k, bool is_signed, int64_t row, int64_t steps, int32_t* tile,
               int32_t* sum) {
  int32_t all = 0;
  auto number = [&](int64_t i) -> int32_t {
    return i >= k ? 0 : is_signed ? static_cast<int8_t>(codes[i]) : codes[i];
  };
  for (int64_t p = 0; p < steps; ++p) {
    const int32_t first = number(2 * p), second = number(2 * p + 1);
    tile[p * rows + row] =
        static_cast<int32_t>((static_cast<uint32_t>(first) & 0xFFFF) | static_cast<uint32_t>(second) << 16);
    all += first + second;
  }
  *sum = all;
}

void pack_right(const uint8_t* const* codes, bool is_signed, int32_t* units, int32_t* sums) {
  const hn::Rebind<uint8_t, D> d8;
  for (int64_t j = 0; j < columns; j += L) {
    I first = hn::BitCast(di, hn::PromoteTo(du, hn::LoadU(d8, codes[0] + j))),
      second = hn::BitCast(di, hn::PromoteTo(du, hn::LoadU(d8, codes[1] + j)));
    if (is_signed) {
      first = hn::ShiftRight<24>(hn::ShiftLeft<24>(first));
      second = hn::ShiftRight<24>(hn::ShiftLeft<24>(second));
    }
    hn::StoreU(hn::Or(hn::And(first, hn::Set(di, 0xFFFF)), hn::ShiftLeft<16>(second)), di, units + j);
    if (sums) hn::StoreU(hn::Add(hn::LoadU(di, sums + j), hn::Add(first, second)), di, sums + j);
  }
}

template <int R>
void tile(const int32_t* left, const int32_t* right, int64_t steps, int32_t* sums) {
  I own[R][2];
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) own[i][0] = own[i][1] = hn::Zero(di);
  for (int64_t p = 0; p < steps; ++p, left += rows, right += columns) {
    const I first = hn::LoadU(di, right), second = hn::LoadU(di, right + L);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i) {
      const I a = hn::Set(di, left[i]);
      own[i][0] = hn::Add(own[i][0], pairs_of(a, first));
      own[i][1] = hn::Add(own[i][1], pairs_of(a, second));
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
    hn::StoreU(own[i][0], di, sums + i * columns);
    hn::StoreU(own[i][1], di, sums + i * columns + L);
  }
}

void multiply(const int32_t* left, const int32_t* right, int64_t, int64_t begin, int64_t count, int64_t made,
              int32_t* sums) {
  left += begin * rows;
  right += begin * columns;
  if (made == 1) tile<1>(left, right, count, sums);
  else if (made <= 4) tile<4>(left, right, count, sums);
  else tile<rows>(left, right, count, sums);
}

void correct(int32_t left_zero, const int32_t* right_sums, const int32_t* right_zeros, int32_t rest, int32_t* sums) {
  for (int64_t j = 0; j < columns; j += L) {
    I sum = hn::Sub(hn::LoadU(di, sums + j), hn::Mul(hn::LoadU(di, right_zeros + j), hn::Set(di, rest)));
    if (left_zero != 0) sum = hn::Sub(sum, hn::Mul(hn::LoadU(di, right_sums + j), hn::Set(di, left_zero)));
    hn::StoreU(sum, di, sums + j);
  }
}

const IntegerTiles tiles{rows, columns, 2, 1, pack_left, pack_right, multiply, correct};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const IntegerTiles& integer_tiles(Isa isa) {
  static const IntegerTiles quads = vnni_tiles(PLAIT_OF_ISA(Isa::avx512, tiles)), matrices = amx_tiles(quads);
  switch (isa) {
    case Isa::avx2:
    case Isa::avx512: return PLAIT_OF_ISA(isa, tiles);
    case Isa::avx512_bf16: return quads;
    case Isa::amx: return matrices;
  }
  return N_AVX2::tiles;
}

}  // namespace plait::cpu
#endif
