// Many rows of x: outer products of packed panels, with the bits of linear_tile.cpp's dot products.
//
// There lane c of a vector sums k = c, c + L, ... and a tree adds the lanes. Here a vector is along the outputs, and
// lanes are processed in sequence: all k of lane c, then all of the next, in the order of the tree's leaves (halves
// are added first: lanes c and c + L/2, so the leaves are in bit-reversed order); sums that wait for their other half
// are on a stack of log2 L tiles. So a step of k costs ROWS + 2 loads, most of them broadcasts of one number, for 2
// ROWS fma, and reads 2 L + ROWS floats where dot products of 6 x 4 vectors read 10 L: memory beyond L1 keeps up.
#include "kernels/cpu/linear/packed_tile.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/panel_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

// AVX-512: 28 of 32 registers hold sums, two w. AVX2: 12 of 16, two w, one x.
constexpr int most_rows = HWY_TARGET == HWY_AVX3 ? 14 : 6;
constexpr int64_t panel = 2 * L;  ///< outputs of a tile
constexpr int levels = HWY_TARGET == HWY_AVX3 ? 4 : 3;
/// Padding between lanes of a packed tile or panel: with k = 1024 or 2048 they would otherwise all map to the same
/// lines of L1.
constexpr int64_t gap = 16;

/// The lane of the tree's leaf `index`, and vice versa.
constexpr int64_t reversed(int64_t index) {
  int64_t out = 0;
  for (int bit = 0; bit < levels; ++bit) out |= (index >> bit & 1) << (levels - 1 - bit);
  return out;
}

int64_t steps_of(int64_t k) { return (k + L - 1) / L; }
/// Floats from one lane of a packed tile of `width` rows (or panel of as many outputs) to the next.
int64_t lane_stride(int64_t k, int64_t width) { return steps_of(k) * width + gap; }

/// `count` <= L rows of k elements, `stride` bytes apart, to lane c of row i at to[reversed(c) * lane + s * width +
/// i] for k = s L + c. Writes whole vectors: the excess over a step's `count` numbers is overwritten by the next
/// step, or is unused (the gap, or the other half of a panel, which is written later).
template <class T>
void spread(const uint8_t* rows, int64_t stride, int64_t count, int64_t k, float* to, int64_t width, int64_t lane) {
  for (int64_t s = 0; s * L < k; ++s) {
    V v[L];
    if (count == L && s * L + L <= k) {
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) v[i] = T::load(rows + i * stride + s * L * T::size);
    } else {
      for (int i = 0; i < L; ++i)
        v[i] = i < count ? load_up_to<T>(rows + i * stride + s * L * T::size, k - s * L) : hn::Zero(df);
    }
    transpose(v);
#pragma GCC unroll 16
    for (int c = 0; c < L; ++c) hn::StoreU(v[c], df, to + reversed(c) * lane + s * width);
  }
}

/// As few tiles as possible for m, of equal height but for the last: 16 rows are 8 and 8.
int64_t group_of(int64_t m) {
  const int64_t tiles = (m + most_rows - 1) / most_rows;
  return tiles ? (m + tiles - 1) / tiles : 1;
}

int64_t bytes_of(int64_t m, int64_t k) {
  const int64_t group = group_of(m);
  return (m + group - 1) / group * L * lane_stride(k, group) * static_cast<int64_t>(sizeof(float));
}

void pack(const float* x, int64_t m, int64_t k, int64_t index, std::byte* packed) {
  const int64_t group = group_of(m), first = index * group, lane = lane_stride(k, group);
  const int64_t rows = std::min(group, m - first);
  spread<AsF32>(bytes(x + first * k), k * AsF32::size, rows, k, reinterpret_cast<float*>(packed) + index * L * lane,
                rows, lane);
}

struct Tile {
  const float* x;  ///< of one packed tile
  const float* w;  ///< of one packed panel
  int64_t steps;
  int64_t x_lane, w_lane;
  float* waiting;        ///< a stack of `levels` tiles
  const uint8_t* ahead;  ///< bytes to fetch meanwhile
  int64_t ahead_bytes;
};

/// ROWS x panel outputs.
template <int ROWS>
void run_tile(const Tile& tile, float* y, int64_t ldy) {
  const Tile t = tile;
  constexpr int64_t size = ROWS * panel;
  const int64_t fetch = (t.ahead_bytes + L - 1) / L;
  V sums[ROWS][2];
  for (int64_t leaf = 0; leaf < L; ++leaf) {
    const float *x = t.x + leaf * t.x_lane, *w = t.w + leaf * t.w_lane;
    for (int64_t byte = leaf * fetch, end = std::min(byte + fetch, t.ahead_bytes); byte < end; byte += 64)
      _mm_prefetch(reinterpret_cast<const char*>(t.ahead + byte), _MM_HINT_T1);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) sums[i][0] = sums[i][1] = hn::Zero(df);
    for (int64_t step = 0; step < t.steps; ++step, x += ROWS, w += panel) {
      const V w0 = hn::LoadU(df, w), w1 = hn::LoadU(df, w + L);
      for (int64_t byte = 0; byte < 8 * L; byte += 64)  // from L2, 8 steps ahead
        _mm_prefetch(reinterpret_cast<const char*>(w + 8 * panel) + byte, _MM_HINT_T0);
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) {
        const V one = hn::Set(df, x[i]);
        sums[i][0] = hn::MulAdd(one, w0, sums[i][0]);
        sums[i][1] = hn::MulAdd(one, w1, sums[i][1]);
      }
    }
    float* waiting = t.waiting;
    for (int64_t half = leaf; half & 1; half >>= 1, waiting += size) {
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) {
        sums[i][0] = hn::Add(hn::LoadU(df, waiting + i * panel), sums[i][0]);
        sums[i][1] = hn::Add(hn::LoadU(df, waiting + i * panel + L), sums[i][1]);
      }
    }
    float* to = leaf + 1 < L ? waiting : y;
    const int64_t stride = leaf + 1 < L ? panel : ldy;
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      hn::StoreU(sums[i][0], df, to + i * stride);
      hn::StoreU(sums[i][1], df, to + i * stride + L);
    }
  }
}

void run_tile(int64_t rows, const Tile& tile, float* y, int64_t ldy) {
  switch (rows) {
    case 1: return run_tile<1>(tile, y, ldy);
    case 2: return run_tile<2>(tile, y, ldy);
    case 3: return run_tile<3>(tile, y, ldy);
    case 4: return run_tile<4>(tile, y, ldy);
    case 5: return run_tile<5>(tile, y, ldy);
    case 6: return run_tile<6>(tile, y, ldy);
#if HWY_TARGET == HWY_AVX3
    case 7: return run_tile<7>(tile, y, ldy);
    case 8: return run_tile<8>(tile, y, ldy);
    case 9: return run_tile<9>(tile, y, ldy);
    case 10: return run_tile<10>(tile, y, ldy);
    case 11: return run_tile<11>(tile, y, ldy);
    case 12: return run_tile<12>(tile, y, ldy);
    case 13: return run_tile<13>(tile, y, ldy);
    case 14: return run_tile<14>(tile, y, ldy);
#endif
  }
}

/// Packed panels, the stack, and a tile of outputs for partial panels.
int64_t scratch(int64_t, int64_t n, int64_t k) {
  return (n + panel - 1) / panel * L * lane_stride(k, panel) + (levels + 1) * most_rows * panel;
}

template <class W>
void block_of(const PackedBlock& b) {
  const BlockedTiles& unpacker = blocked_tiles(HWY_TARGET == HWY_AVX3 ? Isa::avx512 : Isa::avx2);
  const int64_t panels = (b.n + panel - 1) / panel, w_lane = lane_stride(b.k, panel), steps = steps_of(b.k);
  float *w = b.scratch, *waiting = w + panels * L * w_lane, *part = waiting + levels * most_rows * panel;
  for (int64_t j = 0; j < panels * panel; j += L) {
    const int64_t count = std::min(L, b.n - j);
    const uint8_t* rows = b.blocked ? bytes(b.rows) : b.w + j * b.k * W::size;
    if (b.blocked && count > 0) unpacker.unpack(*b.blocked, b.first + j, count, b.rows, b.rows + L * b.k);
    spread<W>(rows, b.k * W::size, count, b.k, w + j / panel * L * w_lane + j % panel, panel, w_lane);
  }
  const int64_t x_lane = lane_stride(b.k, b.group), tiles = (b.m + b.group - 1) / b.group;
  const int64_t calls = tiles * panels, all = b.n * b.k * W::size;
  const auto* x = reinterpret_cast<const float*>(b.packed) + b.begin / b.group * L * x_lane;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t rows = std::min(b.group, b.m - tile * b.group);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t call = tile * panels + p, from = all * call / calls / 64 * 64;
      const Tile t{x + tile * L * x_lane,
                   w + p * L * w_lane,
                   steps,
                   x_lane,
                   w_lane,
                   waiting,
                   b.ahead ? b.ahead + from : nullptr,
                   b.ahead ? all * (call + 1) / calls - from : 0};
      float* y = b.y + tile * b.group * b.ldy + p * panel;
      const int64_t columns = std::min(panel, b.n - p * panel);
      if (columns == panel) {
        run_tile(rows, t, y, b.ldy);
        continue;
      }
      run_tile(rows, t, part, panel);
      for (int64_t i = 0; i < rows; ++i) memcpy(y + i * b.ldy, part + i * panel, static_cast<size_t>(columns) * 4);
    }
  }
}

void block(const PackedBlock& b) {
  if (b.dtype == DType::bf16) block_of<AsBF16>(b);
  else if (b.dtype == DType::f16) block_of<AsF16>(b);
  else block_of<AsF32>(b);
}

constexpr PackedTiles tiles{panel, group_of, bytes_of, pack, scratch, block};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const PackedTiles& panel_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
