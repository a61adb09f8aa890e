// What waits between sections takes the memory that follows from the verifier's facts.
#include "core/schedule/schedules.h"
#include "core/ranks/stage_sections.h"
#include "tests/unit/train/pipeline/deep_decoder.h"

namespace plait::test {
namespace {

constexpr int64_t memory_batches = 8;

/// Peaks of the sets of each pool that a rank's stages use, times their planned bytes.
int64_t expected_bytes(const TrainingModel& model, const ScheduleFacts& facts, int64_t coordinate) {
  int64_t out = 0;
  for (int32_t stage = 0; stage < model.stages.count(); ++stage) {
    const std::vector<int32_t>& seats = model.stages.seats[static_cast<size_t>(stage)];
    const auto seat = std::find(seats.begin(), seats.end(), coordinate);
    if (seat == seats.end()) continue;
    const auto number = seat - seats.begin();
    const LivePeaks& peaks = facts.seats[static_cast<size_t>(stage)][static_cast<size_t>(number)];
    const std::array<int32_t, slot_pools> sets{1, peaks.forward_to_input, peaks.forward_to_weight, peaks.input_to_weight};
    for (const StageSection& section : model.sections.at(TrainingProgram::accumulate)) {
      if (section.stage != stage) continue;
      for (size_t pool = 0; pool < slot_pools; ++pool)
        out += sets[pool] * planned_slot_bytes(*section.program, static_cast<SlotPool>(pool));
      break;  // all sections of a stage have the same slots
    }
  }
  return out;
}

int64_t expect_planned_bytes(const Graph& graph, const std::string& schedule, int32_t ranks, Recompute recompute) {
  SCOPED_TRACE(cat(schedule, " ", ranks));
  CompileOptions compile = on(cat("pipeline=", ranks));
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.pipeline.schedule = schedule;
  options.recompute = recompute;
  ThreadPool pool(2);
  TrainingEngine engine(graph, compile, options, pool);
  const auto all = documents(11);
  std::vector<TrainingSample> samples;
  for (const auto& document : all) samples.push_back({document, {}});
  const PackedStep packed = pack_step(samples, row_tokens, 1, memory_batches);
  EXPECT_EQ(packed.rows.size(), static_cast<size_t>(memory_batches));
  std::vector<MicroBatch> batches;
  for (const auto& rows : packed.rows) batches.push_back({.rows = rows});
  const ScheduleFacts facts =
      check_schedule(make_schedule(schedule, {.ranks = ranks, .micro_batches = static_cast<int32_t>(memory_batches)}));
  int64_t sum = 0;
  for (int step = 0; step < 2; ++step) {
    engine.accumulate(batches);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t expected = expected_bytes(engine.model(rank), facts, rank);
      EXPECT_EQ(engine.slot_bytes(rank), expected) << "rank " << rank << " step " << step;
    }
  }
  for (int64_t rank = 0; rank < ranks; ++rank) sum += engine.slot_bytes(rank);
  return sum;
}

TEST(PipelineMemory, FollowsFromTheFacts) {
  const Graph graph = deep_graph(6);
  for (const ScheduleRow& row : schedule_rows())
    if (!row.asynchronous) {
      EXPECT_GT(expect_planned_bytes(graph, std::string(row.name), 4, Recompute::off), 0);
    }
}

TEST(PipelineMemory, OfSchedulesAndRecomputation) {
  const Graph graph = deep_graph(6);
  const auto bytes = [&](const char* schedule, Recompute recompute) {
    return expect_planned_bytes(graph, schedule, 4, recompute);
  };
  EXPECT_LT(bytes("1f1b", Recompute::off), bytes("gpipe", Recompute::off));
  EXPECT_LT(bytes("1f1b", Recompute::full), bytes("1f1b", Recompute::selective));
  EXPECT_LT(bytes("1f1b", Recompute::selective), bytes("1f1b", Recompute::off));
}

}  // namespace
}  // namespace plait::test
