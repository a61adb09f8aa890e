// A schedule of one's own in twenty lines: what docs/pipelines.md shows. It needs nothing but the lists.
#include <gmock/gmock.h>

#include "tests/unit/schedule/schedule_cases.h"

namespace plait::test {
namespace {

using testing::HasSubstr;

/// GPipe in waves: `wave` forwards, then their backwards, then the next ones. A rank holds `wave` micro-batches instead of all, and
/// the pipeline drains between waves.
Schedule waves(int32_t ranks, int32_t micro_batches, int32_t wave) {
  Schedule out{.stages = ranks, .micro_batches = micro_batches, .seats = {}, .ranks = {}};
  out.ranks.resize(static_cast<size_t>(ranks));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    out.seats.push_back({rank});
    std::vector<Action>& list = out.ranks[static_cast<size_t>(rank)];
    for (int32_t first = 0; first < micro_batches; first += wave) {
      const int32_t end = std::min(first + wave, micro_batches);
      for (int32_t k = first; k < end; ++k) list.push_back({Kind::forward, rank, k});
      for (int32_t k = first; k < end; ++k) list.push_back({Kind::backward, rank, k});
    }
  }
  return out;
}

TEST(OwnSchedule, IsAFunctionThatWritesLists) {
  const Schedule schedule = waves(4, 8, 4);
  const ScheduleFacts facts = check_schedule(schedule);
  for (const LivePeaks& rank : facts.ranks) EXPECT_EQ(rank.forward_to_input, 4);
  EXPECT_TRUE(facts.ascending);
  // Two waves of GPipe with half the micro-batches.
  EXPECT_DOUBLE_EQ(makespan(schedule, costs(1, 2)), 2 * 3 * (4 + 4 - 1));
  EXPECT_EQ(parse_schedule(schedule.text()), schedule);
  EXPECT_EQ(waves(4, 8, 8), made("gpipe", 4, 8));
}

TEST(OwnSchedule, FaultsAreFoundBeforeItRuns) {
  Schedule forgotten = waves(2, 4, 2);
  forgotten.ranks[1].pop_back();
  EXPECT_THAT(message_of([&] { check_schedule(forgotten); }), HasSubstr("1B3"));
  // Rank 1 wants its backward first, which needs the forward that its own list has later.
  Schedule swapped = waves(2, 2, 2);
  std::swap(swapped.ranks[1].front(), swapped.ranks[1].back());
  EXPECT_THAT(message_of([&] { check_schedule(swapped); }), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace plait::test
