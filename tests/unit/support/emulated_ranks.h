#pragma once
// Ranks of a pipeline that sleep instead of computing: lists, mail and waits are real.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/ranks/gather_timeline.h"
#include "core/ranks/local_ranks.h"
#include "tests/unit/support/chain_work.h"

namespace plait::test {

struct EmulatedRun {
  double wall_s = 0;    ///< from the first rank's begin to the last one's end
  double waited_s = 0;  ///< of all ranks together
  Timeline timeline;    ///< as each rank returns it
};

/// Runs a rank's list on each thread of `ranks`. `work`: of a rank. Begins on all ranks at once. `skewed`: the ranks'
/// clocks differ.
template <class MakeWork>
EmulatedRun run_on_ranks(LocalRanks& ranks, const Schedule& schedule, int32_t places, const MakeWork& work,
                         bool skewed = false) {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point begin, end;
    double waited_s;
    Timeline timeline;
  };
  const std::vector<Span> spans = ranks.gather([&](int64_t local) {
    Communicator& all = ranks.world(local)->communicator();
    const int rank = static_cast<int>(ranks.rank(local));
    const std::unique_ptr<Communicator> pipeline = all.split(0, rank), control = all.split(0, rank);
    const std::unique_ptr<StageWork> own = work(rank);
    ActionRunner runner(pipeline.get(), control.get());
    all.barrier();
    const double waited = all.waited_s();
    const auto begin = Clock::now();
    runner.run(schedule, places, *own);
    const auto end = Clock::now();
    const double waited_s = all.waited_s() - waited;
    // Clocks that differ by seconds, as of machines that were started one after another.
    const double skew = skewed ? 10.0 * rank : 0;
    std::vector<TimelineSpan> ran = runner.spans();
    for (TimelineSpan& one : ran) one.begin_s += skew, one.end_s += skew;
    const auto clock = [&] { return monotonic_s() + skew; };
    return Span{begin, end, waited_s, gather_timeline(control.get(), schedule, ran, clock)};
  });
  EmulatedRun out;
  auto begin = spans[0].begin, end = spans[0].end;
  for (const Span& one : spans) {
    begin = std::min(begin, one.begin);
    end = std::max(end, one.end);
    out.waited_s += one.waited_s;
  }
  out.timeline = spans.back().timeline;
  out.wall_s = std::chrono::duration<double>(end - begin).count();
  return out;
}

/// Each action of the schedule takes cost(action) seconds; its messages have so many floats.
inline EmulatedRun emulate(LocalRanks& ranks, const Schedule& schedule, int32_t places,
                           const std::function<double(const Action&)>& cost, int64_t floats) {
  return run_on_ranks(ranks, schedule, places, [&](int) {
    return std::make_unique<ChainWork>(schedule.stages, floats, [&](const Action& action) {
      std::this_thread::sleep_for(std::chrono::duration<double>(cost(action)));
    });
  });
}

}  // namespace plait::test
