// Many rows of rounded x: outer products of packed panels with the bits of rounded_dot.cpp, like panel_tile.cpp for
// linear_tile.cpp, which explains it. There lane c of a vector sums pairs c, c + 16, ... of k and a tree adds the
// lanes; here lanes are processed in sequence, in the order of the tree's leaves. Few rows go to rounded_dot.cpp.
#include <cstring>

#include "kernels/cpu/simd/avx512_bf16.h"
#include "kernels/cpu/gemm/bf16_tile.h"
#include "kernels/cpu/linear/packed_tile.h"

namespace plait::cpu {
namespace {

/// Minimum rows for which transposing w pays off.
constexpr int64_t from_rows = 28;

constexpr int levels = 4;
constexpr int64_t lanes = pair_lanes, panel = pair_panel;
/// Padding between lanes of a packed tile or panel: with k = 2048 or 4096 they would otherwise all map to the same
/// lines of L1.
constexpr int64_t gap = 16;

/// The lane of the tree's leaf `index`, and vice versa.
constexpr int64_t reversed(int64_t index) {
  int64_t out = 0;
  for (int bit = 0; bit < levels; ++bit) out |= (index >> bit & 1) << (levels - 1 - bit);
  return out;
}

int64_t steps_of(int64_t k) { return (k + 2 * lanes - 1) / (2 * lanes); }
/// Pairs from one lane of a packed tile of `width` rows (or panel of as many outputs) to the next.
int64_t lane_stride(int64_t k, int64_t width) { return steps_of(k) * width + gap; }

/// As few tiles as possible for m, of equal height but for the last.
int64_t group_of(int64_t m) {
  if (m < from_rows) return rounded_group;
  const int64_t tiles = (m + pair_rows - 1) / pair_rows;
  return (m + tiles - 1) / tiles;
}

int64_t bytes_of(int64_t m, int64_t k) {
  if (m < from_rows) return rounded_bytes(m, k);
  const int64_t group = group_of(m);
  return (m + group - 1) / group * lanes * lane_stride(k, group) * 4;
}

PLAIT_BEGIN_AVX512_BF16

/// `count` <= 16 rows of k numbers, `stride` bytes apart, to lane c of row i at to[reversed(c) * lane + s * width +
/// i] for pair s * 16 + c. Writes whole vectors: the excess over a step's `count` pairs is overwritten by the next
/// step, or is unused (the gap, or the other half of a panel, which is written later).
template <class T>
void spread(const uint8_t* rows, int64_t stride, int64_t count, int64_t k, uint32_t* to, int64_t width,
            int64_t lane) {
  for (int64_t s = 0; s < steps_of(k); ++s) {
    __m512 v[lanes];
    pairs_of_rows<T>(rows, stride, count, k, s * lanes, v);
#pragma GCC unroll 16
    for (int64_t c = 0; c < lanes; ++c) _mm512_storeu_ps(to + reversed(c) * lane + s * width, v[c]);
  }
}

void pack(const float* x, int64_t m, int64_t k, int64_t index, std::byte* packed) {
  if (m < from_rows) return bf16_dot_tiles().pack(x, m, k, index, packed);
  const int64_t group = group_of(m), first = index * group, lane = lane_stride(k, group);
  const int64_t rows = m - first < group ? m - first : group;
  spread<Floats>(reinterpret_cast<const uint8_t*>(x + first * k), k * Floats::size, rows, k,
                 reinterpret_cast<uint32_t*>(packed) + index * lanes * lane, rows, lane);
}

struct Tile {
  const uint32_t* x;  ///< of one packed tile
  const uint32_t* w;  ///< of one packed panel
  int64_t steps;
  int64_t x_lane, w_lane;
  float* waiting;  ///< a stack of `levels` tiles
};

/// ROWS x panel outputs.
template <class Op, int ROWS>
void run_tile(const Tile& t, float* y, int64_t ldy) {
  constexpr int64_t size = ROWS * panel;
  __m512 sums[ROWS][2];
  for (int64_t leaf = 0; leaf < lanes; ++leaf) {
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    add_products<Op, ROWS, ROWS>(sums, t.x + leaf * t.x_lane, t.w + leaf * t.w_lane, t.steps);
    float* waiting = t.waiting;
    for (int64_t half = leaf; half & 1; half >>= 1, waiting += size) {
#pragma GCC unroll 16
      for (int i = 0; i < ROWS; ++i) {
        sums[i][0] = _mm512_add_ps(_mm512_loadu_ps(waiting + i * panel), sums[i][0]);
        sums[i][1] = _mm512_add_ps(_mm512_loadu_ps(waiting + i * panel + lanes), sums[i][1]);
      }
    }
    float* to = leaf + 1 < lanes ? waiting : y;
    const int64_t stride = leaf + 1 < lanes ? panel : ldy;
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      _mm512_storeu_ps(to + i * stride, sums[i][0]);
      _mm512_storeu_ps(to + i * stride + lanes, sums[i][1]);
    }
  }
}

template <class Op, int ROWS = pair_rows>
void run_rows(int64_t rows, const Tile& tile, float* y, int64_t ldy) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return run_rows<Op, ROWS - 1>(rows, tile, y, ldy);
  run_tile<Op, ROWS>(tile, y, ldy);
}

/// Packed panels, the stack, and a tile of outputs for partial panels.
int64_t scratch(int64_t m, int64_t n, int64_t k) {
  if (m < from_rows) return 0;
  return (n + panel - 1) / panel * lanes * lane_stride(k, panel) + (levels + 1) * pair_rows * panel;
}

template <class Op>
void panel_block(const PackedBlock& b) {
  const int64_t panels = (b.n + panel - 1) / panel, w_lane = lane_stride(b.k, panel), steps = steps_of(b.k);
  auto* w = reinterpret_cast<uint32_t*>(b.scratch);
  float *waiting = b.scratch + panels * lanes * w_lane, *part = waiting + levels * pair_rows * panel;
  for (int64_t j = 0; j < panels * panel; j += lanes)
    spread<Halves>(b.w + j * b.k * Halves::size, b.k * Halves::size, b.n - j, b.k,
                   w + j / panel * lanes * w_lane + j % panel, panel, w_lane);
  const int64_t x_lane = lane_stride(b.k, b.group), tiles = (b.m + b.group - 1) / b.group;
  const auto* x = reinterpret_cast<const uint32_t*>(b.packed) + b.begin / b.group * lanes * x_lane;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t rows = b.m - tile * b.group < b.group ? b.m - tile * b.group : b.group;
    for (int64_t p = 0; p < panels; ++p) {
      const Tile t{x + tile * lanes * x_lane, w + p * lanes * w_lane, steps, x_lane, w_lane, waiting};
      float* y = b.y + tile * b.group * b.ldy + p * panel;
      const int64_t columns = b.n - p * panel;
      if (columns >= panel) {
        run_rows<Op>(rows, t, y, b.ldy);
        continue;
      }
      run_rows<Op>(rows, t, part, panel);
      for (int64_t i = 0; i < rows; ++i) memcpy(y + i * b.ldy, part + i * panel, static_cast<size_t>(columns) * 4);
    }
  }
}

PLAIT_END_AVX512_BF16

void hardware_block(const PackedBlock& b) {
  if (b.group == rounded_group) bf16_dot_tiles().block(b);
  else panel_block<Hardware>(b);
}
void emulated_block(const PackedBlock& b) {
  if (b.group == rounded_group) emulated_bf16_dot_tiles().block(b);
  else panel_block<Emulated>(b);
}

constexpr PackedTiles tiles_of(void (*block)(const PackedBlock&)) {
  return {panel, group_of, bytes_of, pack, scratch, block};
}
constexpr PackedTiles hardware = tiles_of(hardware_block), emulated = tiles_of(emulated_block);

}  // namespace

const PackedTiles& bf16_tiles() { return hardware; }
const PackedTiles& emulated_bf16_tiles() { return emulated; }

}  // namespace plait::cpu
