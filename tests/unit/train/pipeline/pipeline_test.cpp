// Training in pipeline stages is training on one rank: whatever the schedule, mesh, level of ZeRO and recomputation.
#include <algorithm>
#include <cctype>

#include "core/schedule/schedules.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

std::vector<std::string> schedules() {
  std::vector<std::string> out;
  for (const ScheduleRow& row : schedule_rows())
    if (!row.asynchronous) out.emplace_back(row.name);
  return out;
}

Outcome run_in_f64(const std::string& fixture, const std::string& mesh, const TrainingOptions& options) {
  return run(fixture, mesh, options, nullptr, DType::f64);
}

struct PipelineCase {
  std::string fixture, mesh, schedule;
};

std::string pipeline_name(const testing::TestParamInfo<PipelineCase>& info) {
  std::string out = info.param.fixture + "_" + info.param.mesh + "_" + info.param.schedule;
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
}

class PipelineTraining : public testing::TestWithParam<PipelineCase> {};

TEST_P(PipelineTraining, IsTrainingOnOneRank) {
  const auto& [fixture, mesh, schedule] = GetParam();
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  const Outcome expected = run_in_f64(fixture, "", options);
  options.pipeline.schedule = schedule;
  expect_same(run_in_f64(fixture, mesh, options), expected, in_f64);
}

/// Every schedule on two ranks and on four; every family on one.
std::vector<PipelineCase> pipeline_cases() {
  std::vector<PipelineCase> out;
  for (const std::string& schedule : schedules())
    for (const char* mesh : {"pipeline=2", "pipeline=2,data=2,tensor=2"}) out.push_back({"llama-standard23", mesh, schedule});
  for (const char* fixture : {"gpt2-optimum18", "gemma3-standard23"})
    for (const char* schedule : {"1f1b", "zb-v", "chimera"}) out.push_back({fixture, "pipeline=2", schedule});
  return out;
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineTraining, testing::ValuesIn(pipeline_cases()), pipeline_name);

/// A table that the first stage and the last read: both add to one sum, a partial sum over data ranks, though gathering the few tokens
/// of all of them would move less.
TEST(PipelineTraining, OfTiedTables) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  for (const char* fixture : {"gpt2-optimum18", "gemma3-standard23"}) {
    const Outcome expected = run_in_f64(fixture, "", options);
    for (const auto& [mesh, zero] : {std::pair{"pipeline=2,data=4", 0}, {"pipeline=2,data=2,tensor=2", 3}}) {
      SCOPED_TRACE(cat(fixture, " ", mesh, " ", zero));
      options.zero = zero;
      expect_same(run_in_f64(fixture, mesh, options), expected, in_f64);
    }
  }
}

/// Whatever is cut by ZeRO, and what is computed again.
TEST(PipelineTraining, WithZeroAndRecomputation) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  const Outcome expected = run_in_f64("llama-standard23", "", options);
  for (int zero = 0; zero < 4; ++zero)
    for (Recompute recompute : {Recompute::off, Recompute::selective, Recompute::full})
      for (const char* schedule : {"1f1b", "zb-h1"}) {
        SCOPED_TRACE(cat(zero, " ", static_cast<int>(recompute), " ", schedule));
        options.zero = zero;
        options.recompute = recompute;
        options.pipeline.schedule = schedule;
        expect_same(run_in_f64("llama-standard23", "pipeline=2,data=2", options), expected, in_f64);
      }
}

TEST(PipelineTraining, OfAdapters) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  options.lora.dropout = 0.3;
  const Outcome expected = run_in_f64("llama-standard23", "", options);
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved:2"})
    for (const char* mesh : {"pipeline=2", "pipeline=2,tensor=2", "pipeline=2,data=2"}) {
      SCOPED_TRACE(cat(schedule, " ", mesh));
      options.pipeline.schedule = schedule;
      expect_same(run_in_f64("llama-standard23", mesh, options), expected, in_f64);
    }
}

/// Ranks that are processes: mpirun starts this one, with 2 or 4 of them.
TEST(PipelineTraining, OfProcesses) {
  plait::World* const world = processes();
  if (!world) GTEST_SKIP() << "only under mpirun";
  const std::string mesh = world->size() == 2 ? "pipeline=2" : "pipeline=2,data=2";
  for (const char* fixture : {"llama-untied-optimum18", "gemma3-standard23"}) {
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    const Outcome expected = run_in_f64(fixture, "", options);
    for (const auto& [schedule, zero] : {std::pair{"1f1b", 0}, {"zb-v", 1}, {"chimera", 3}}) {
      SCOPED_TRACE(cat(fixture, " ", mesh, " ", schedule, " zero ", zero));
      options.pipeline.schedule = schedule;
      options.zero = zero;
      const Outcome got = run(fixture, mesh, options, world, DType::f64);
      if (world->rank() == 0) expect_same(got, expected, in_f64);
    }
  }
}

TEST(PipelineTraining, OfAHostsLoss) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  const Outcome expected = run("llama-standard23", "", options);
  options.host_loss = true;
  for (const char* mesh : {"pipeline=2", "pipeline=2,data=2"}) {
    SCOPED_TRACE(mesh);
    expect_same(run("llama-standard23", mesh, options), expected);
  }
}

}  // namespace
}  // namespace plait::test
