#pragma once
// Distributes work over a pool, if there is enough of it; scratch alignment.
#include <algorithm>
#include <cstdint>

#include "core/base/thread_pool.h"

namespace plait::cpu {

/// Below this many elementary steps (a fused multiply-add, an element moved: 0.05 to 0.5 ns each) a call stays on its
/// thread: waking others costs 1 to 5 us.
constexpr int64_t least_shared_work = 1 << 16;

/// Rounds up to whole cache lines, so that workers do not share any.
constexpr int64_t align(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Calls task(item, worker) for each item in [0, items), only on the caller's thread if `work` is small. Larger work ends between two
/// items once the run is cancelled.
template <class Task>
void share(ThreadPool& pool, int64_t items, int64_t work, Task&& task) {
  if (work < least_shared_work || items < 2) {
    for (int64_t item = 0; item < items; ++item) task(item, 0);
  } else {
    pool.for_each(items, task);
  }
}

/// Calls task(begin, end, worker) for consecutive ranges of [0, count), whose ends are multiples of `grain`. `cost`
/// is the work of one element. About four ranges per thread, to balance unequal cores.
template <class Task>
void share_ranges(ThreadPool& pool, int64_t count, int64_t grain, int64_t cost, Task&& task) {
  int64_t ranges = std::max<int64_t>(1, std::min((count + grain - 1) / grain, int64_t{4} * pool.size()));
  if (count * cost < least_shared_work) ranges = 1;
  auto edge = [&](int64_t i) { return i == ranges ? count : count * i / ranges / grain * grain; };
  share(pool, ranges, count * cost, [&](int64_t i, int worker) {
    if (edge(i) < edge(i + 1)) task(edge(i), edge(i + 1), worker);
  });
}

}  // namespace plait::cpu
