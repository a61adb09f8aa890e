// Schedules differ in order and memory, not in numbers: the same bits as one rank that adds up the same micro-batches.
#include "core/schedule/schedules.h"
#include "tests/unit/train/pipeline/deep_decoder.h"

namespace plait::test {
namespace {

constexpr int64_t micro_batches = 8;

/// Synchronous schedules with one rank a stage: several would add up their sums in another order.
std::vector<std::string> straight_schedules(int32_t ranks) {
  std::vector<std::string> out;
  for (const ScheduleRow& row : schedule_rows()) {
    if (row.asynchronous) continue;
    const Seats seats = row.seats(ranks, row.usual);
    if (std::all_of(seats.begin(), seats.end(), [](const auto& of) { return of.size() == 1; })) out.emplace_back(row.name);
  }
  return out;
}

TrainingOptions of_bits() {
  TrainingOptions out = training(OptimizerKind::adamw, 0);
  out.pipeline.micro_batches = micro_batches;
  return out;
}

void expect_bits_of_one_rank(const Graph& graph, int32_t ranks) {
  const Outcome expected = run(graph, "", of_bits());
  const std::vector<std::string> schedules = straight_schedules(ranks);
  EXPECT_GE(schedules.size(), 9u);
  for (const std::string& schedule : schedules) {
    SCOPED_TRACE(schedule);
    TrainingOptions options = of_bits();
    options.pipeline.schedule = schedule;
    const Outcome got = run(graph, cat("pipeline=", ranks), options);
    EXPECT_EQ(got.losses, expected.losses);
    expect_equal_updates(got, expected);
  }
}

TEST(PipelineBits, AreThoseOfOneRank) { expect_bits_of_one_rank(fixture_graph("llama-untied-optimum18"), 2); }

TEST(PipelineBits, OfManyStages) { expect_bits_of_one_rank(deep_graph(6), 4); }

}  // namespace
}  // namespace plait::test
