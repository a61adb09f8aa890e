#include "core/ranks/gather_timeline.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/tensor.h"

namespace plait {
namespace {

/// What a rank sends: the time before and after a barrier, then its actions by place in its list; places that did not
/// run have end < begin.
struct Row {
  double begin_s = 0, end_s = -1;
};

/// Time to subtract from each rank's. On one clock every rank reads its time before the barrier no later than any
/// other does after it.
std::vector<double> clock_offsets(std::span<const Row> rows, size_t ranks) {
  const size_t stride = rows.size() / ranks;
  double entered = rows[0].begin_s, left = rows[0].end_s;
  for (size_t rank = 0; rank < ranks; ++rank) {
    entered = std::max(entered, rows[rank * stride].begin_s);
    left = std::min(left, rows[rank * stride].end_s);
  }
  std::vector<double> out(ranks, 0);
  if (entered > left)
    for (size_t rank = 0; rank < ranks; ++rank) out[rank] = rows[rank * stride].end_s;
  return out;
}

}  // namespace

Timeline gather_timeline(Communicator* pipeline, const Schedule& schedule, const std::vector<TimelineSpan>& spans,
                         const std::function<double()>& clock) {
  const auto ranks = static_cast<int32_t>(schedule.ranks.size());
  if (!pipeline) return timeline_of(spans, ranks);
  size_t most = 0;
  for (const auto& list : schedule.ranks) most = std::max(most, list.size());
  std::vector<Row> mine(1 + most), all(mine.size() * static_cast<size_t>(ranks));
  const auto& list = schedule.ranks[static_cast<size_t>(pipeline->rank())];
  size_t place = 0;
  for (const TimelineSpan& span : spans) {
    while (place < list.size() && !(list[place] == span.action)) ++place;
    PLAIT_ASSERT(place < list.size());
    mine[1 + place++] = {span.begin_s, span.end_s};
  }
  mine[0].begin_s = clock();
  pipeline->barrier();
  mine[0].end_s = clock();
  const auto numbers = [](std::vector<Row>& rows) {
    return TensorView{reinterpret_cast<std::byte*>(rows.data()), DType::f64, {static_cast<int64_t>(2 * rows.size())}};
  };
  pipeline->all_gather(numbers(mine), numbers(all));
  const std::vector<double> offsets = clock_offsets(all, static_cast<size_t>(ranks));
  std::vector<TimelineSpan> out;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const Row* rows = &all[mine.size() * static_cast<size_t>(rank)];
    const double offset = offsets[static_cast<size_t>(rank)];
    for (const Action& action : schedule.ranks[static_cast<size_t>(rank)]) {
      const Row& row = *++rows;
      if (row.end_s >= row.begin_s) out.push_back({rank, action, row.begin_s - offset, row.end_s - offset});
    }
  }
  return timeline_of(std::move(out), ranks);
}

}  // namespace plait
