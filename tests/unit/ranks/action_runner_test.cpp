// Lists of actions on ranks: order, mail, places for it, errors, and the time of the simulation.
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "core/ranks/action_runner.h"
#include "core/schedule/schedules.h"
#include "core/schedule/timeline.h"
#include "tests/unit/ranks/engine.h"
#include "tests/unit/support/emulated_ranks.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using testing::HasSubstr;

/// A synchronous schedule by name, checked.
struct Lists {
  Schedule schedule;
  int32_t places = 1;

  Lists(const std::string& name, int32_t ranks, int32_t micro_batches)
      : Lists(make_schedule(name, {.ranks = ranks, .micro_batches = micro_batches})) {}
  explicit Lists(Schedule lists) : schedule(std::move(lists)), places(std::max(check_schedule(schedule).places, 1)) {}
};

using Actions = std::vector<Action>;

/// What each rank ran.
std::vector<Actions> run_lists(LocalRanks& ranks, const Lists& lists, int32_t values = 1) {
  std::vector<Actions> ran(static_cast<size_t>(ranks.count()));
  run_on_ranks(ranks, lists.schedule, lists.places, [&](int rank) {
    Actions& own = ran[static_cast<size_t>(rank)];
    const auto note = [&own](const Action& action) { own.push_back(action); };
    return std::make_unique<ChainWork>(lists.schedule.stages, 5, note, values);
  });
  return ran;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::replace_if(out.begin(), out.end(), [](unsigned char letter) { return !std::isalnum(letter); }, '_');
  return out;
}

class EverySchedule : public testing::TestWithParam<std::string> {};

/// Values name their maker, so that each has come to its place.
TEST_P(EverySchedule, RunsAsListed) {
  for (const int32_t count : {2, 4}) {
    LocalRanks ranks(count);
    for (const int32_t micro_batches : {1, 3, 8}) {
      SCOPED_TRACE(cat(count, " ranks, ", micro_batches, " micro-batches"));
      const Lists lists(GetParam(), count, micro_batches);
      EXPECT_EQ(run_lists(ranks, lists, 3), lists.schedule.ranks);
    }
  }
}

std::vector<std::string> synchronous() {
  std::vector<std::string> out;
  for (const ScheduleRow& row : schedule_rows())
    if (!row.asynchronous) out.emplace_back(row.name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(ActionRunner, EverySchedule, testing::ValuesIn(synchronous()), name_of);

TEST(ActionRunner, OneRankHandsOverToItself) {
  const Lists lists(parse_schedule("stages 3 micro-batches 2 seats 0 0 0\n"
                                   "0F0 1F0 0F1 2F0 2B0 1F1 1B0 0B0 2F1 2I1 1I1 2W1 0I1 1W1 0W1\n"));
  Actions ran;
  ChainWork work(3, 5, [&](const Action& action) { ran.push_back(action); }, 2);
  ActionRunner(nullptr, nullptr).run(lists.schedule, lists.places, work);
  EXPECT_EQ(ran, lists.schedule.ranks[0]);
  EXPECT_EQ(work.handed_over(), 2 * 2 * 2 * 2) << "two edges, two micro-batches, two directions, two values";
}

/// Where neighbours are on one rank, they hand over; where they are not, they send.
TEST(ActionRunner, HandsOverAtTheTurnOfAVee) {
  const Lists lists("zb-v", 2, 4);
  LocalRanks ranks(2);
  std::vector<int64_t> handed_over(2);
  class Counting final : public ChainWork {
   public:
    Counting(int32_t stages, int64_t& count) : ChainWork(stages, 5), count_(count) {}
    ~Counting() override { count_ = handed_over(); }

   private:
    int64_t& count_;
  };
  run_on_ranks(ranks, lists.schedule, lists.places, [&](int rank) {
    return std::make_unique<Counting>(lists.schedule.stages, handed_over[static_cast<size_t>(rank)]);
  });
  EXPECT_EQ(handed_over, (std::vector<int64_t>{0, 2 * 4})) << "stages 1 and 2 are on rank 1";
}

/// The sender's order is not the order in which the receiver wants messages. One place is enough, as for the verifier:
/// what comes before a wanted message is set aside.
TEST(ActionRunner, TakesInAnotherOrderThanGiven) {
  const Lists lists(parse_schedule("stages 2 micro-batches 4 seats 0 1\n"
                                   "0F0 0F1 0F2 0F3 0B1 0B3 0B0 0B2\n"
                                   "1F2 1F0 1F3 1F1 1B3 1B2 1B1 1B0\n"));
  ASSERT_EQ(lists.places, 1);
  LocalRanks ranks(2, {.deadline_s = hang_s});
  EXPECT_EQ(run_lists(ranks, lists, 2), lists.schedule.ranks);
}

/// While its receiver takes nothing, a rank gives as many messages as there are places, and no more: of those that it has
/// made, one more was taken for the action that runs, and one waits for a place.
TEST(ActionRunner, PlacesBoundWhatIsInTransit) {
  constexpr int32_t micro_batches = 12;
  const Lists lists("gpipe", 2, micro_batches);
  for (const int32_t places : {1, 3, micro_batches}) {
    const int32_t expected = std::min(places + 2, micro_batches);
    LocalRanks ranks(2);
    std::atomic<int32_t> made = 0;
    int32_t ahead = 0;
    run_on_ranks(ranks, lists.schedule, places, [&](int) {
      return std::make_unique<ChainWork>(2, 5, [&](const Action& action) {
        if (action.text() == "1F0") {
          EXPECT_TRUE(eventually([&] { return made >= expected; }));
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // one too many would come
          ahead = made;
        }
        if (action.stage == 0 && action.kind == Action::Kind::forward) ++made;
      });
    });
    EXPECT_EQ(ahead, expected) << places << " places";
  }
}

/// The others, which wait for what never comes, end too.
TEST(ActionRunner, AnErrorOfTheWorkEndsTheWorld) {
  const Lists lists("1f1b", 4, 6);
  for (int culprit = 0; culprit < 4; ++culprit)
    for (const char* word : {"F2", "B3"}) {
      SCOPED_TRACE(cat(culprit, word));
      LocalRanks ranks(4);
      const std::string failing = cat(culprit, word);
      const Error error = thrown_by([&] {
        run_on_ranks(ranks, lists.schedule, lists.places, [&](int) {
          return std::make_unique<ChainWork>(4, 5, [&](const Action& action) {
            if (action.text() == failing) throw Error(Code::numeric, cat("a fault in ", failing));
          });
        });
      });
      EXPECT_EQ(error.code(), Code::numeric);
      EXPECT_THAT(error.message(), HasSubstr(failing));
      EXPECT_EQ(ranks.world(0)->communicator().failed_rank(), culprit);
    }
}

/// Fails once, in the given part of an action.
class FaultyWork final : public ChainWork {
 public:
  enum class Part { take, run, give };
  struct Fault {
    const char* action;
    Part part;
  };
  FaultyWork(int32_t stages, Fault fault, std::function<void()> fail)
      : ChainWork(stages, 5), fault_(fault), fail_(std::move(fail)) {}

  TensorView taken(const Action& action, int32_t value) override {
    if (!ran_) meet(action, Part::take);
    return ChainWork::taken(action, value);
  }
  void run(const Action& action) override {
    ran_ = true;
    meet(action, Part::run);
    ChainWork::run(action);
    given_ = true;
  }
  TensorView given(const Action& action, int32_t value) override {
    if (given_) meet(action, Part::give);
    return ChainWork::given(action, value);
  }
  void finish(const Action& action) override {
    ran_ = given_ = false;
    ChainWork::finish(action);
  }

 private:
  void meet(const Action& action, Part part) {
    if (action.text() == fault_.action && part == fault_.part) fail_();
  }

  const Fault fault_;
  const std::function<void()> fail_;
  bool ran_ = false, given_ = false;
};

/// Rank 2 of four has stage 2.
constexpr FaultyWork::Fault faults[] = {
    {"2F1", FaultyWork::Part::take}, {"2F1", FaultyWork::Part::run}, {"2F4", FaultyWork::Part::give},
    {"2I0", FaultyWork::Part::take}, {"2I2", FaultyWork::Part::run}, {"2I2", FaultyWork::Part::give},
    {"2W3", FaultyWork::Part::run}};

TEST(ActionRunner, AFaultInAnyPartOfAnActionEndsTheWorld) {
  const Lists lists("zb-h1", 4, 6);
  for (const auto& fault : faults) {
    SCOPED_TRACE(cat(fault.action, " part ", static_cast<int>(fault.part)));
    LocalRanks ranks(4);
    const Error error = thrown_by([&] {
      run_on_ranks(ranks, lists.schedule, lists.places, [&](int) {
        return std::make_unique<FaultyWork>(4, fault, [] { throw Error(Code::numeric, "a fault"); });
      });
    });
    EXPECT_EQ(error.code(), Code::numeric);
    EXPECT_EQ(ranks.world(0)->communicator().failed_rank(), 2);
  }
}

/// A rank that hangs is given up after the deadline, by its number.
TEST(ActionRunner, ARankThatStallsEndsTheWorld) {
  const Lists lists("zb-h1", 4, 6);
  for (const auto& fault : faults) {
    SCOPED_TRACE(cat(fault.action, " part ", static_cast<int>(fault.part)));
    LocalRanks ranks(4, {.deadline_s = 0.5 * machine_load()});
    const auto stall = [&] {
      EXPECT_TRUE(eventually([&] { return ranks.world(0)->communicator().failed_rank() >= 0; }));
    };
    const Error error = thrown_by([&] {
      run_on_ranks(ranks, lists.schedule, lists.places,
                   [&](int) { return std::make_unique<FaultyWork>(4, fault, stall); });
    });
    EXPECT_EQ(error.code(), Code::closed);
    EXPECT_THAT(error.message(), HasSubstr("rank 2"));
  }
}

/// Pauses between actions, of any length on any rank, change nothing: for ThreadSanitizer too.
TEST(ActionRunner, PausesChangeNothing) {
  for (const char* name : {"1f1b", "interleaved:2", "zb-v", "chimera"}) {
    const Lists lists(name, 4, 8);
    for (uint32_t seed = 0; seed < 3; ++seed) {
      LocalRanks ranks(4);
      run_on_ranks(ranks, lists.schedule, lists.places, [&](int rank) {
        auto random = std::make_shared<std::minstd_rand>(17 * seed + static_cast<uint32_t>(rank) + 1);
        return std::make_unique<ChainWork>(lists.schedule.stages, 5, [random](const Action&) {
          std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 500));
        });
      });
    }
  }
}

/// Ranks that sleep as long as their sections would compute: never faster than the simulation, and as fast where the
/// machine gives them their processor in time, which it does in one of some attempts.
TEST(ActionRunner, TakesTheTimeOfTheSimulation) {
  constexpr double unit_s = 4e-3;
  const auto cost = [](const Action& action) { return action.kind == Action::Kind::backward ? 2 * unit_s : unit_s; };
  LocalRanks ranks(4);
  for (const char* name : {"1f1b", "interleaved:2", "zb-h1"}) {
    const Lists lists(name, 4, 8);
    const double simulated = simulate(lists.schedule, {.cost = cost, .places = lists.places}).makespan_s;
    double best = 1e9;
    for (int attempt = 0; attempt < 10 && best > 1.1 * simulated; ++attempt) {
      const double wall = emulate(ranks, lists.schedule, lists.places, cost, 64).wall_s;
      EXPECT_GE(wall, simulated * 0.999) << name;
      best = std::min(best, wall);
    }
    EXPECT_LE(best, 1.25 * simulated) << name;
  }
}

std::map<std::string, TimelineSpan> by_action(const Timeline& timeline) {
  std::map<std::string, TimelineSpan> out;
  for (const TimelineSpan& span : timeline.spans) out.emplace(span.action.text(), span);
  return out;
}

/// The timeline has each rank's list in its order, and nothing begins before what it needs has ended. Clocks that differ
/// are aligned to within the time that ranks take to leave a barrier.
TEST(ActionRunner, TheTimelineIsThatOfAllRanks) {
  const Lists lists("1f1b", 4, 6);
  for (const bool skewed : {false, true}) {
    LocalRanks ranks(4);
    const auto work = [](int) {
      return std::make_unique<ChainWork>(4, 5, [](const Action&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    };
    const EmulatedRun run = run_on_ranks(ranks, lists.schedule, lists.places, work, skewed);
    std::vector<Actions> ran(4);
    for (const TimelineSpan& span : run.timeline.spans) ran[static_cast<size_t>(span.rank)].push_back(span.action);
    EXPECT_EQ(ran, lists.schedule.ranks);
    EXPECT_LT(run.timeline.makespan_s, 2 * run.wall_s) << "clocks differ by 10 s a rank";
    if (skewed) continue;
    EXPECT_LE(run.timeline.makespan_s, run.wall_s);
    const auto at = by_action(run.timeline);
    for (int32_t k = 0; k < 6; ++k)
      for (int32_t stage = 1; stage < 4; ++stage) {
        EXPECT_LE(at.at(cat(stage - 1, "F", k)).end_s, at.at(cat(stage, "F", k)).begin_s);
        EXPECT_LE(at.at(cat(stage, "B", k)).end_s, at.at(cat(stage - 1, "B", k)).begin_s);
      }
  }
}

}  // namespace
}  // namespace plait::test
