// The runner of schedules, with work that counts: every action gets what it needs, whatever crosses in which order, and a
// rank that fails is heard of.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/world.h"
#include "core/ranks/action_runner.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/schedules.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using Kind = Action::Kind;
using Clock = std::chrono::steady_clock;

bool is_forward(const Action& action) { return action.kind == Kind::forward; }
bool gives_back(const Action& action) { return action.kind == Kind::backward || action.kind == Kind::input_gradient; }

/// What an action makes: of its stage, micro-batch and direction.
int64_t made_by(int32_t stage, int32_t micro_batch, bool forward) {
  return (int64_t{micro_batch} * 1000 + stage) * 2 + forward;
}

/// Stages that only count. Of each message it checks the sender, the micro-batch and the direction.
class CountingWork final : public StageWork {
 public:
  CountingWork(const Schedule& schedule, const std::vector<StageEdge>& edges, std::function<void(const Action&)> on_run = {})
      : edges_(edges), on_run_(std::move(on_run)) {
    for (int32_t stage = 0; stage < schedule.stages; ++stage)
      for (bool forward : {true, false}) {
        Messages& own = messages_[{stage, forward}];
        for (const StageEdge& edge : edges_) {
          if (edge.to == stage) (forward ? own.takes : own.gives).push_back({edge.from, {edge.from}});
          if (edge.from == stage) (forward ? own.gives : own.takes).push_back({edge.to, {edge.to}});
        }
      }
  }

  bool has(const Action&) const override { return true; }
  std::span<const StageMessage> takes(const Action& action) const override {
    return crosses(action) ? std::span<const StageMessage>(messages_.at(key(action)).takes) : std::span<const StageMessage>();
  }
  std::span<const StageMessage> gives(const Action& action) const override {
    return crosses(action) ? std::span<const StageMessage>(messages_.at(key(action)).gives) : std::span<const StageMessage>();
  }
  void prepare(const Action&) override {}
  TensorView taken(const Action& action, int32_t from) override {
    auto& place = taken_.try_emplace({action.micro_batch, action.stage, from, is_forward(action)}, -1).first->second;
    return view(place);
  }
  void run(const Action& action) override {
    if (on_run_) on_run_(action);
    for (const StageMessage& message : takes(action)) {
      const auto found = taken_.find({action.micro_batch, action.stage, message.stage, is_forward(action)});
      EXPECT_EQ(found->second, made_by(message.stage, action.micro_batch, is_forward(action))) << action.text();
      taken_.erase(found);
    }
    given_ = made_by(action.stage, action.micro_batch, is_forward(action));
    ++runs;
  }
  TensorView given(const Action&, int32_t) override { return view(given_); }
  void hand_over(const TensorView& from, const TensorView& to) override { std::memcpy(to.data, from.data, sizeof(int64_t)); }
  void finish(const Action&) override {}

  int64_t runs = 0;
  bool is_empty() const { return taken_.empty(); }

 private:
  struct Messages {
    std::vector<StageMessage> takes, gives;
  };
  static bool crosses(const Action& action) { return is_forward(action) || gives_back(action); }
  static std::pair<int32_t, bool> key(const Action& action) { return {action.stage, is_forward(action)}; }
  static TensorView view(int64_t& number) { return {reinterpret_cast<std::byte*>(&number), DType::i64, {1}}; }

  const std::vector<StageEdge> edges_;
  const std::function<void(const Action&)> on_run_;
  std::map<std::pair<int32_t, bool>, Messages> messages_;
  std::map<std::tuple<int32_t, int32_t, int32_t, bool>, int64_t> taken_;  ///< micro-batch, stage, from, forward
  int64_t given_ = 0;
};

/// Runs the schedule on threads; by rank what it throws, "" for nothing.
std::vector<std::string> run_on_threads(const Schedule& schedule, const std::vector<StageEdge>& edges,
                                        const CommOptions& options = {},
                                        const std::function<void(int, const Action&)>& on_run = {}) {
  const ScheduleFacts facts = check_schedule(schedule, {.edges = edges});
  const auto ranks = static_cast<int>(schedule.ranks.size());
  auto worlds = make_thread_world(ranks, options);
  std::vector<std::string> errors(worlds.size());
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank, world = std::move(worlds[static_cast<size_t>(rank)])] {
      try {
        const auto control = world->communicator().split(0, rank), across = world->communicator().split(0, rank);
        CountingWork work(schedule, edges, [&](const Action& action) {
          if (on_run) on_run(rank, action);
        });
        try {
          ActionRunner(across.get(), control.get()).run(schedule, facts.unwanted(), work);
        } catch (const Error& error) {
          world->communicator().abort(error.message());
          throw;
        }
        EXPECT_EQ(work.runs, static_cast<int64_t>(schedule.ranks[static_cast<size_t>(rank)].size()));
        EXPECT_TRUE(work.is_empty());
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.message();
      }
    });
  threads.clear();
  return errors;
}

void expect_runs(const Schedule& schedule, const std::vector<StageEdge>& edges, const CommOptions& options = {}) {
  for (const std::string& error : run_on_threads(schedule, edges, options)) EXPECT_EQ(error, "");
}

/// A deadline that a list which stands still runs into.
CommOptions short_deadline() {
  CommOptions out;
  out.deadline_s = 5 * machine_load();
  return out;
}

TEST(ActionRunner, RunsEverySchedule) {
  for (const ScheduleRow& row : schedule_rows()) {
    if (row.asynchronous) continue;
    for (int32_t ranks : {2, 4})
      for (int32_t micro_batches : {1, 3, 8}) {
        SCOPED_TRACE(cat(row.name, " ", ranks, " ", micro_batches));
        const Schedule schedule = make_schedule(row.name, {.ranks = ranks, .micro_batches = micro_batches});
        expect_runs(schedule, chain_edges(schedule.stages), short_deadline());
      }
  }
}

/// Skips to any later stage: messages of a pair come in another order than they are wanted.
TEST(ActionRunner, RunsWithSkips) {
  std::mt19937 random(5);
  int aside = 0;
  for (const ScheduleRow& row : schedule_rows()) {
    if (row.asynchronous) continue;
    for (int round = 0; round < 3; ++round) {
      const Schedule schedule = make_schedule(row.name, {.ranks = 4, .micro_batches = 3 + round});
      std::vector<StageEdge> edges;
      for (int32_t from = 0; from < schedule.stages; ++from)
        for (int32_t to = from + 1; to < schedule.stages; ++to)
          if (to == from + 1 || random() % 3 == 0) edges.push_back({from, to});
      SCOPED_TRACE(cat(row.name, " round ", round));
      aside += check_schedule(schedule, {.edges = edges}).set_aside > 0;
      expect_runs(schedule, edges, short_deadline());
    }
  }
  EXPECT_GT(aside, 3) << "some messages wait for others";
}

/// Ranks that are slow at random.
TEST(ActionRunner, RunsAtAnySpeed) {
  std::atomic<uint32_t> state = 7;
  CommOptions options = short_deadline();
  options.delay = [&] {
    if ((state = state * 1664525 + 1013904223) >> 28 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  };
  for (const char* name : {"1f1b", "interleaved:2", "zb-v", "chimera"}) {
    const Schedule schedule = make_schedule(name, {.ranks = 4, .micro_batches = 9});
    expect_runs(schedule, chain_edges(schedule.stages), options);
  }
}

struct RunnerFault {
  Kind kind;
  int rank;
  bool stalls;
};

class FaultyRunner : public testing::TestWithParam<RunnerFault> {};

/// All others end within the bound, with the number of the rank.
TEST_P(FaultyRunner, IsNamed) {
  const RunnerFault fault = GetParam();
  const double load = machine_load();
  CommOptions options;
  options.deadline_s = fault.stalls ? load / 2 : 120;
  const Schedule schedule = make_schedule("zb-h1", {.ranks = 3, .micro_batches = 6});
  std::atomic<int> heard = 0;
  const auto start = Clock::now();
  const auto errors = run_on_threads(schedule, chain_edges(3), options, [&](int rank, const Action& action) {
    if (rank != fault.rank || action.kind != fault.kind || action.micro_batch != 2) return;
    if (!fault.stalls) throw Error(Code::internal, "a fault for the test");
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * options.deadline_s));
  });
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 15 * load);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (rank == static_cast<size_t>(fault.rank)) continue;
    heard += errors[rank].find(cat("rank ", fault.rank)) != std::string::npos;
    EXPECT_NE(errors[rank], "") << "rank " << rank;
  }
  EXPECT_GE(heard, 1);
}

std::vector<RunnerFault> runner_faults() {
  std::vector<RunnerFault> out;
  for (int rank : {0, 1, 2}) out.push_back({Kind::forward, rank, false});
  for (Kind kind : {Kind::input_gradient, Kind::weight_gradient}) out.push_back({kind, 1, false});
  out.push_back({Kind::forward, 1, true});
  out.push_back({Kind::input_gradient, 2, true});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, FaultyRunner, testing::ValuesIn(runner_faults()), [](const auto& info) {
  return cat(action_letter(info.param.kind), "_rank", info.param.rank, info.param.stalls ? "_stalls" : "_throws");
});

}  // namespace
}  // namespace plait::test
