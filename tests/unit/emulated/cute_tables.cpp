#include "tests/unit/emulated/cute_tables.h"

#if __has_include(<cute/atom/mma_traits_sm80.hpp>)
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>

namespace plait::test {
namespace {
using Mma = cute::MMA_Traits<cute::SM80_16x8x16_F32BF16BF16F32_TN>;

/// Element of bit `bit` of the lane.
template <class Instruction>
Place of_bit(int lane, int bit) {
  using Traits = cute::Copy_Traits<Instruction>;
  const int from = static_cast<int>(typename Traits::DstLayout{}(lane, bit));  // of all source bits
  return {from / 128, from % 128 / 16};
}
}  // namespace

bool has_cute_tables() { return true; }
Place cute_a(int lane, int i) {
  const int at = static_cast<int>(Mma::ALayout{}(lane, i));
  return {at % 16, at / 16};
}
Place cute_b(int lane, int i) {
  const int at = static_cast<int>(Mma::BLayout{}(lane, i));
  return {at % 8, at / 8};
}
Place cute_sums(int lane, int i) {
  const int at = static_cast<int>(Mma::CLayout{}(lane, i));
  return {at % 16, at / 16};
}
Place cute_matrices(int lane, int i, bool transposed) {
  return transposed ? of_bit<cute::SM75_U16x8_LDSM_T>(lane, i * 16) : of_bit<cute::SM75_U32x4_LDSM_N>(lane, i * 16);
}
}  // namespace plait::test

#else

namespace plait::test {
bool has_cute_tables() { return false; }
Place cute_a(int, int) { return {}; }
Place cute_b(int, int) { return {}; }
Place cute_sums(int, int) { return {}; }
Place cute_matrices(int, int, bool) { return {}; }
}  // namespace plait::test
#endif
