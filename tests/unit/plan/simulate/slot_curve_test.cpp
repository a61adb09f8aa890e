#include "core/plan/simulate/slot_curve.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/text.h"
#include "core/exec/program.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/schedules.h"

namespace plait::test {
namespace {

/// The most sets at a time, as the verifier counts them, with one pool of one byte a set.
TEST(SlotCurve, ReachesThePeaksOfTheVerifier) {
  for (const char* name : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v", "chimera", "dualpipe-v", "pipedream"})
    for (const SlotPool pool : {SlotPool::forward_to_input, SlotPool::forward_to_weight, SlotPool::input_to_weight}) {
      SCOPED_TRACE(cat(name, ", pool ", static_cast<int>(pool)));
      ScheduleShape shape;
      shape.ranks = 4;
      shape.micro_batches = 8;
      const Schedule schedule = make_schedule(name, shape);
      const ScheduleFacts facts = check_schedule(schedule);
      std::vector<StageCosts> stages(static_cast<size_t>(schedule.stages));
      for (StageCosts& one : stages) one.slots[static_cast<size_t>(pool)] = 1;
      const Timeline timeline = simulate(schedule);
      const auto curves = slot_curves(schedule, timeline, stages);
      ASSERT_EQ(curves.size(), facts.ranks.size());
      for (size_t rank = 0; rank < curves.size(); ++rank) {
        const LivePeaks& peaks = facts.ranks[rank];
        const int32_t most = pool == SlotPool::forward_to_input    ? peaks.forward_to_input
                             : pool == SlotPool::forward_to_weight ? peaks.forward_to_weight
                                                                   : peaks.input_to_weight;
        double reached = 0;
        for (const SlotPoint& point : curves[rank]) reached = std::max(reached, point.bytes);
        EXPECT_EQ(reached, most);
        EXPECT_EQ(curves[rank].back().bytes, 0);
        const std::vector<double> cells = most_in_cells(curves[rank], timeline.makespan_s, 7);
        EXPECT_EQ(*std::max_element(cells.begin(), cells.end()), most);
      }
    }
}

TEST(SlotCurve, CellsHaveTheMostOfTheirTime) {
  const std::vector<SlotPoint> curve = {{0, 1}, {2.5, 7}, {2.75, 2}, {6, 0}};
  EXPECT_EQ(most_in_cells(curve, 8, 4), (std::vector<double>{1, 7, 2, 2}));
  EXPECT_EQ(most_in_cells({{0, 3}}, 0, 2), (std::vector<double>{3, 0}));
}

}  // namespace
}  // namespace plait::test
