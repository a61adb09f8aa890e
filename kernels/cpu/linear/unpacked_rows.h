#pragma once
// Unpacks rows of quantised weights to floats, for products of many rows, which read them several times.
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// Unpacks rows of w, in the order of x, which has k elements.
class RowUnpacker {
 public:
  RowUnpacker(Isa isa, const BlockedWeight& w, int64_t k) : tiles_(blocked_tiles(loops_of(isa))), w_(w), k_(k) {}

  /// Scratch of a worker.
  int64_t bytes() const { return align(4 * (together * w_.padded() + dot_scratch(w_.blocks))); }

  /// Rows [begin, begin + n), contiguous.
  void unpack(int64_t begin, int64_t n, float* to, std::byte* scratch) const {
    auto* rows = reinterpret_cast<float*>(scratch);
    for (int64_t i = 0; i < n; i += together) {
      const int64_t count = std::min(together, n - i);
      tiles_.unpack(w_, begin + i, count, rows, rows + together * w_.padded());
      for (int64_t row = 0; row < count; ++row) tiles_.restore(rows + row * w_.padded(), k_, w_, to + (i + row) * k_);
    }
  }
  /// The same, distributed over a pool; `scratch` has bytes() for each worker.
  void unpack(ThreadPool& pool, int64_t begin, int64_t n, float* to, std::byte* scratch) const {
    share_ranges(pool, n, together, k_, [&](int64_t first, int64_t last, int worker) {
      unpack(begin + first, last - first, to + first * k_, scratch + worker * bytes());
    });
  }

 private:
  static constexpr int64_t together = 8;
  const BlockedTiles& tiles_;
  const BlockedWeight w_;
  const int64_t k_;
};

}  // namespace plait::cpu
