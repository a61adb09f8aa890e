#pragma once
// Two operands that broadcast, run by run.
#include <algorithm>

#include "core/base/shape.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// The dimensions of a broadcast, merged if both operands traverse them alike: sizes, and steps in elements of a and
/// b (0 for broadcast). The last dimension has steps 0 or 1.
struct Broadcast {
  int rank = 0;
  int64_t sizes[Shape::max_rank] = {}, a_steps[Shape::max_rank] = {}, b_steps[Shape::max_rank] = {};

  Broadcast(const Shape& a, const Shape& b, const Shape& y) {
    int64_t a_step = 1, b_step = 1;
    for (int i = 1; i <= y.rank(); ++i) {  // from the back
      int64_t size = y.back(i), in_a = i <= a.rank() ? a.back(i) : 1, in_b = i <= b.rank() ? b.back(i) : 1;
      if (size != 1) prepend(size, in_a == 1 ? 0 : a_step, in_b == 1 ? 0 : b_step);
      a_step *= in_a, b_step *= in_b;
    }
    if (rank == 0) prepend(1, 0, 0);
    std::reverse(sizes, sizes + rank);
    std::reverse(a_steps, a_steps + rank);
    std::reverse(b_steps, b_steps + rank);
  }
  int64_t inner() const { return sizes[rank - 1]; }

 private:
  void prepend(int64_t size, int64_t a_step, int64_t b_step) {
    int last = rank - 1;
    auto continues = [&](const int64_t* steps, int64_t step) {
      return steps[last] == 0 ? step == 0 : step == steps[last] * sizes[last];
    };
    if (rank && continues(a_steps, a_step) && continues(b_steps, b_step)) {
      sizes[last] *= size;
      return;
    }
    sizes[rank] = size, a_steps[rank] = a_step, b_steps[rank] = b_step;
    ++rank;
  }
};

/// `count` results from y on, of elements from a and b on; steps are 0 or 1.
struct BroadcastRun {
  int64_t a, a_step, b, b_step, y, count;
};

constexpr int64_t broadcast_grain = 1024;  ///< elements: shares begin at multiples of it, also within rows

/// Calls each(BroadcastRun) until all results of y are made.
template <class Each>
void each_run(ThreadPool& pool, const Shape& a, const Shape& b, const Shape& y, const Each& each) {
  const int64_t count = y.elements(0, y.rank());
  if (count == 0) return;
  const Broadcast shape(a, b, y);
  const int64_t inner = shape.inner();
  const int last = shape.rank - 1;
  share_ranges(pool, count, broadcast_grain, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end;) {
      int64_t row = i / inner, column = i % inner, n = std::min(inner - column, end - i), a_at = 0, b_at = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        int64_t index = row % shape.sizes[axis];
        row /= shape.sizes[axis];
        a_at += index * shape.a_steps[axis], b_at += index * shape.b_steps[axis];
      }
      each(BroadcastRun{a_at + column * shape.a_steps[last], shape.a_steps[last], b_at + column * shape.b_steps[last],
                        shape.b_steps[last], i, n});
      i += n;
    }
  });
}

}  // namespace plait::cpu
