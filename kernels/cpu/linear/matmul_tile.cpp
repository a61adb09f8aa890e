#include "kernels/cpu/linear/matmul_tile.h"

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/matmul_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/broadcast-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

/// From here on the right side is first copied to a panel of contiguous rows: it is read m / 8 times, at strides that
/// would cost a TLB entry each.
constexpr int64_t panel_from_rows = 2 * broadcast_rows;

void block(const MatmulBlock& b) {
  const bool packs = b.m >= panel_from_rows;
  const int64_t depth = packs ? matmul_depth : (b.k > 0 ? b.k : 1);
  for (int64_t k = 0; k == 0 || k < b.k; k += depth) {
    const int64_t count = b.k - k < depth ? b.k - k : depth;
    const uint8_t* right = bytes(b.b + k * b.ldb);
    int64_t stride = b.ldb * 4;
    if (packs) {
      for (int64_t row = 0; row < count; ++row)
        memcpy(b.panel + row * matmul_columns, right + row * stride, static_cast<size_t>(b.n) * sizeof(float));
      right = bytes(b.panel);
      stride = matmul_columns * 4;
    }
    cover_rows(0, b.m, [&]<int ROWS>(int64_t i) HWY_ATTR {
      broadcast_product<AsF32, ROWS>(b.a + i * b.lda + k, b.lda, count, right, stride, b.y + i * b.ldy, b.ldy, b.n,
                                     k > 0 || b.adds);
    });
  }
}

const MatmulTiles tiles{block};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const MatmulTiles& matmul_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
