// Per-target products whose right side has contiguous columns: lanes are columns, an element of the left side is
// broadcast, so that no sum crosses lanes. Shared by attention's scores and by MatMul.
#if defined(PLAIT_KERNELS_CPU_BROADCAST_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PLAIT_KERNELS_CPU_BROADCAST_INL_H
#undef PLAIT_KERNELS_CPU_BROADCAST_INL_H
#else
#define PLAIT_KERNELS_CPU_BROADCAST_INL_H
#endif

#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// Rows that share each load of the right side: 8 rows x 2 vectors are 16 sums of AVX-512's 32 registers, 4 x 2 are 8
/// of AVX2's 16: enough for two fma per cycle with a latency of 4 cycles.
constexpr int broadcast_rows = HWY_TARGET == HWY_AVX3 ? 8 : 4;

/// y[i, j] (+)= sum over k of a[i, k] b[k, j], k ascending by fma, for ROWS rows and columns [0, N L), or [0, count)
/// if PARTIAL. `more`: adds to y.
template <class T, int ROWS, int N, bool PARTIAL>
HWY_INLINE void broadcast_tile(const float* a, int64_t lda, int64_t k, const uint8_t* b, int64_t b_stride, float* y,
                               int64_t ldy, int64_t count, bool more) {
  auto load = [&]<class U>(U, const uint8_t* p, int n) HWY_ATTR {
    if constexpr (PARTIAL) return load_up_to<U>(p, count - n * L);
    else return U::load(p);
  };
  V sums[ROWS][N];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[i][n] = more ? load(AsF32{}, bytes(y + i * ldy + n * L), n) : hn::Zero(df);
  for (int64_t row = 0; row < k; ++row) {
    V right[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) right[n] = load(T{}, b + row * b_stride + n * L * T::size, n);
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; ++i) {
      V left = hn::Set(df, a[i * lda + row]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sums[i][n] = hn::MulAdd(left, right[n], sums[i][n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      if constexpr (PARTIAL) store_up_to<AsF32>(sums[i][n], bytes(y + i * ldy + n * L), count - n * L);
      else hn::StoreU(sums[i][n], df, y + i * ldy + n * L);
    }
}

/// The same for any number of columns.
template <class T, int ROWS>
void broadcast_product(const float* a, int64_t lda, int64_t k, const uint8_t* b, int64_t b_stride, float* y,
                       int64_t ldy, int64_t columns, bool more) {
  int64_t j = 0;
  for (; j + 2 * L <= columns; j += 2 * L)
    broadcast_tile<T, ROWS, 2, false>(a, lda, k, b + j * T::size, b_stride, y + j, ldy, 2 * L, more);
  for (; j < columns; j += L)
    broadcast_tile<T, ROWS, 1, true>(a, lda, k, b + j * T::size, b_stride, y + j, ldy, columns - j, more);
}

/// Calls f.operator()<ROWS>(row) so that the ROWS of all calls cover [begin, end).
template <class F>
HWY_INLINE void cover_rows(int64_t begin, int64_t end, F f) {
  for (; begin + broadcast_rows <= end; begin += broadcast_rows) f.template operator()<broadcast_rows>(begin);
  if (broadcast_rows > 4 && begin + 4 <= end) f.template operator()<4>(begin), begin += 4;
  if (begin + 2 <= end) f.template operator()<2>(begin), begin += 2;
  if (begin < end) f.template operator()<1>(begin);
}

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#endif
