// Ranks that serve: what they do in order, how they fail, and that rank 0 hears of it. No failure here is one that only a
// deadline ends: deadlines are a minute, and tests check that they take less.
#include <gmock/gmock.h>

#include "tests/unit/ranks/engine.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Hosts : public testing::TestWithParam<bool> {
 protected:
  void TearDown() override {
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - begin_).count(), hang_s / 2) << "a wait ended by its deadline";
  }
  static bool processes() { return GetParam(); }

 private:
  const Clock::time_point begin_ = Clock::now();
};

TEST_P(Hosts, CommandsAreHandledInOrderByEveryRank) {
  const Script script;
  CounterEngine engine("data=2,tensor=2", script, processes());
  engine.agree();
  for (int i = 1; i <= 100; ++i) engine.add(i);
  EXPECT_EQ(engine.counters(), (std::vector<int64_t>(3, 5050)));
  engine.sum();
  engine.add(1);
  EXPECT_EQ(engine.counters(), (std::vector<int64_t>(3, 4 * 5050 + 1)));
  EXPECT_EQ(engine.own.number, 4 * 5050 + 1);
}

TEST_P(Hosts, ARankThatThrowsEndsTheWorldWithItsReason) {
  for (const int culprit : {1, 2, 3})
    for (const int64_t at : {0, 1, 3}) {
      SCOPED_TRACE(cat("rank ", culprit, ", command ", at));
      Script script;
      script.before_command = [&](int rank, int64_t command) {
        if (rank == culprit && command == at) throw Error(Code::numeric, "a fault for the test");
      };
      CounterEngine engine("tensor=4", script, processes());
      engine.agree();
      const Error error = thrown_by([&] {
        for (int i = 0; i < 5; ++i) engine.sum();
        engine.counters();
      });
      EXPECT_EQ(error.code(), Code::closed);
      EXPECT_THAT(error.message(), HasSubstr(cat("rank ", culprit, " aborted the world: a fault for the test")));
      EXPECT_EQ(engine.host->world().communicator().failed_rank(), culprit);
      EXPECT_EQ(thrown_by([&] { engine.counters(); }).code(), Code::closed) << "and so it stays";
    }
}

TEST_P(Hosts, ARankWithOtherProgramsIsNamed) {
  struct Case {
    ProgramIdentities programs;
    const char* message;
  };
  const Case cases[] = {
      {{{"count", "1", 1}, {"sum", "3", 1}}, "rank 2 compiled another program sum (fingerprint 3) than rank 0 (2)"},
      {{{"count", "7", 1}, {"sum", "2", 1}}, "rank 2 compiled another program count (fingerprint 7) than rank 0 (1)"},
      {{{"count", "1", 1}}, "rank 2 compiled the programs count; rank 0 compiled count, sum"},
      {{{"count", "1", 1}, {"sum", "2", 5}}, "rank 2 has other weights than rank 0"}};
  for (const Case& one : cases) {
    Script script;
    script.compile = [&](int rank) { return rank == 2 ? one.programs : counter_programs(); };
    CounterEngine engine("tensor=4", script, processes());
    const Error error = thrown_by([&] { engine.agree(); });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_THAT(error.message(), HasSubstr(one.message));
  }
}

/// What every rank has to report is received first, so that nothing is left for the next command.
TEST_P(Hosts, TheFirstErrorIsThrownWhenAllHaveReported) {
  Script script;
  script.compile = [](int rank) {
    if (rank != 2) throw Error(Code::not_found, cat("no file on ", rank), "look for it");
    return counter_programs();
  };
  CounterEngine engine("tensor=4", script, processes());
  const Error error = thrown_by([&] { engine.agree(); });
  EXPECT_EQ(error.code(), Code::not_found);
  EXPECT_EQ(error.message(), "rank 1: no file on 1");
  EXPECT_EQ(error.hint(), "look for it");
  engine.broadcast(AddNumber{1});  // ranks that refused take commands without doing anything
}

TEST_P(Hosts, TheErrorOfRank0ComesFirst) {
  Script script;
  script.compile = [](int) -> ProgramIdentities { throw Error(Code::not_found, "no file"); };
  CounterEngine engine("tensor=2", script, processes());
  const auto own = []() -> ProgramIdentities { throw Error(Code::bad_model, "no graph"); };
  const Error error = thrown_by([&] { engine.host->agree(own); });
  EXPECT_EQ(error.code(), Code::bad_model);
  EXPECT_EQ(error.message(), "no graph");
}

TEST_P(Hosts, AnErrorThatIsReportedLeavesTheWorldAsItWas) {
  Script script;
  std::atomic<int> loads = 0;
  script.load = [&](LoadProgress*) {
    if (loads++ == 0) throw Error(Code::io, "the disk is gone");
  };
  CounterEngine engine("tensor=2", script, processes());
  engine.agree();
  const auto load = [&] {
    engine.broadcast(LoadCounter{});
    engine.host->gather_loaded([] {});
  };
  EXPECT_EQ(thrown_by(load).message(), "rank 1: the disk is gone");
  load();
  engine.sum();
}

INSTANTIATE_TEST_SUITE_P(All, Hosts, testing::Bool(),
                         [](const auto& info) { return info.param ? "processes" : "threads"; });

TEST(ServeRank, ThreadsOfAProcessAreBounded) {
  const Error error =
      thrown_by([&] { RankHost(Mesh::parse("data=100000"), CommOptions{}, [](World&, LoadProgress&) {}); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_THAT(error.message(), testing::AllOf(HasSubstr("100000 ranks"), HasSubstr("at most 1024")));
}

TEST(ServeRank, ARankWithoutAGraphRefuses) {
  auto worlds = make_thread_world(2);
  std::jthread other([&world = *worlds[1]] {
    refuse_rank(world, Error(Code::not_found, "there is no file"));
    const Script script;
    serve_counter(world, script);  // the world lives on
  });
  const std::shared_ptr<World> world = std::move(worlds[0]);
  const Mesh mesh = Mesh::parse("tensor=2");
  {
    const RankHost host(mesh, world);
    const Error error = thrown_by([&] { host.agree([] { return counter_programs(); }); });
    EXPECT_EQ(error.message(), "rank 1: there is no file");
    host.broadcast(CounterCommands::encode(AddNumber{1}));
  }
  const RankHost host(mesh, world);
  host.agree([] { return counter_programs(); });
}

TEST(ServeRank, ARankThatLeavesIsNoticed) {
  auto worlds = make_thread_world(3);
  std::jthread leaving([world = std::move(worlds[1])] {
    report_ok(*world, counter_programs());
    world->next_command();  // and gone
  });
  std::jthread serving([world = std::move(worlds[2])] {
    const Script script;
    EXPECT_THROW(serve_counter(*world, script), Error);
  });
  const RankHost host(Mesh::parse("tensor=3"), std::shared_ptr<World>(std::move(worlds[0])));
  host.agree([] { return counter_programs(); });
  host.broadcast(CounterCommands::encode(TakeCounter{}));
  const Error error = thrown_by([&] { host.gather(host.others(), RankHost::Patience::endless); });
  EXPECT_EQ(error.code(), Code::closed);
  EXPECT_THAT(error.message(), HasSubstr("rank 1 left the world"));
}

TEST(ServeRank, ARankThatStallsIsNamedAtTheDeadline) {
  Script script;
  std::atomic<bool> over = false;
  script.before_command = [&](int rank, int64_t) {
    while (rank == 2 && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  CounterEngine engine("tensor=3", script, true, 0.3 * machine_load());
  engine.agree();
  engine.broadcast(TakeCounter{});
  const Error error = thrown_by([&] { engine.host->gather(engine.host->others(), RankHost::Patience::deadline); });
  EXPECT_THAT(error.message(), HasSubstr("rank 2 does not come"));
  over = true;
}

/// Threads that load end when the engine does, and when rank 0 fails.
TEST(ServeRank, LoadingIsCancelled) {
  Script script;
  std::atomic<int> loading = 0, cancelled = 0;
  script.load = [&](LoadProgress* progress) {
    ++loading;
    try {
      while (true) {
        progress->check();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    } catch (...) {
      ++cancelled;
      throw;
    }
  };
  {
    CounterEngine engine("tensor=3", script, false);
    engine.agree();
    engine.broadcast(LoadCounter{});
    while (loading < 2) std::this_thread::yield();
  }
  EXPECT_EQ(cancelled, 2);
  CounterEngine engine("tensor=3", script, false);
  engine.agree();
  engine.broadcast(LoadCounter{});
  const Error error =
      thrown_by([&] { engine.host->gather_loaded([] { throw Error(Code::out_of_memory, "too large"); }); });
  EXPECT_EQ(error.code(), Code::out_of_memory);
  EXPECT_EQ(cancelled, 4);
}

TEST(ServeRank, AMeshOfAnotherSizeThanTheWorldIsRefused) {
  auto worlds = make_thread_world(2);
  const Error error =
      thrown_by([&] { RankHost(Mesh::parse("tensor=3"), std::shared_ptr<World>(std::move(worlds[0]))); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_THAT(error.message(), HasSubstr("has 3 ranks, and the world 2"));
}

}  // namespace
}  // namespace plait::test
