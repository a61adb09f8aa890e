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

/// sum + both products of each pair of i16: exact, since 2 x 255 x 255 is far from 31 bits.
HWY_INLINE I add_pairs(I sum, I a, I b) {
#if HWY_TARGET == HWY_AVX3
  return hn::Add(sum, I{_mm512_madd_epi16(a.raw, b.raw)});
#else
  return hn::Add(sum, I{_mm256_madd_epi16(a.raw, b.raw)});
#endif
}

template <int R>
void tile(const int32_t* left, const int16_t* right, int64_t pairs, int32_t* sums) {
  I own[R][2];
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) own[i][0] = own[i][1] = hn::Zero(di);
  const auto* b = reinterpret_cast<const int32_t*>(right);
  for (int64_t p = 0; p < pairs; ++p, left += rows, b += columns) {
    const I first = hn::LoadU(di, b), second = hn::LoadU(di, b + L);
#pragma GCC unroll 12
    for (int i = 0; i < R; ++i) {
      const I a = hn::Set(di, left[i]);
      own[i][0] = add_pairs(own[i][0], a, first);
      own[i][1] = add_pairs(own[i][1], a, second);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < R; ++i) {
    hn::StoreU(own[i][0], di, sums + i * columns);
    hn::StoreU(own[i][1], di, sums + i * columns + L);
  }
}

/// Depthwise convolutions have one row.
void multiply(const int32_t* left, const int16_t* right, int64_t pairs, int64_t count, int32_t* sums) {
  if (count == 1) tile<1>(left, right, pairs, sums);
  else if (count <= 4) tile<4>(left, right, pairs, sums);
  else tile<rows>(left, right, pairs, sums);
}

const IntegerTiles tiles{rows, columns, multiply};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const IntegerTiles& integer_tiles(Isa isa) { return isa == Isa::avx2 ? N_AVX2::tiles : N_AVX3::tiles; }

}  // namespace plait::cpu
#endif
