// Generators: their makespans against the papers' formulas, for any number of micro-batches, and their lists.
#include "core/schedule/schedules.h"

#include <gmock/gmock.h>

#include "tests/unit/schedule/schedule_cases.h"
#include "tests/unit/support/golden.h"

namespace plait::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

const std::pair<int, int> sizes[] = {{2, 2}, {4, 4}, {4, 8}, {4, 16}, {6, 12}, {8, 32}};

std::vector<int> live(const Schedule& schedule) {
  std::vector<int> out;
  for (const LivePeaks& one : check_schedule(schedule).ranks) out.push_back(one.forward_to_weight);
  return out;
}
int most(const std::vector<int>& numbers) { return *std::max_element(numbers.begin(), numbers.end()); }

TEST(Schedules, WholeBackwardsTakeWhatTheirFormulasState) {
  for (const auto& [p, m] : sizes) {
    SCOPED_TRACE(cat("p ", p, " m ", m));
    EXPECT_DOUBLE_EQ(makespan(made("naive", p, m), costs(1, 2)), 3. * m * p);
    for (const char* name : {"gpipe", "1f1b"})
      EXPECT_DOUBLE_EQ(makespan(made(name, p, m), costs(1, 2)), 3. * (m + p - 1));
    std::vector<int> fewest;
    for (int i = 0; i < p; ++i) fewest.push_back(std::min(p - i, m));
    EXPECT_EQ(live(made("1f1b", p, m)), fewest);
    EXPECT_THAT(live(made("gpipe", p, m)), Each(m));
    EXPECT_THAT(live(made("naive", p, m)), Each(1));
    for (const int v : {2, 3}) {
      for (const char* name : {"interleaved", "bfs"})
        EXPECT_NEAR(makespan(made(cat(name, ":", v), p, m), costs(1. / v, 2. / v)), 3. * m + (p - 1) * 3. / v, 1e-9)
            << name;
      if (m >= 2 * p) {
        EXPECT_EQ(live(made(cat("interleaved:", v), p, m))[0], 2 * (p - 1) + (v - 1) * p + 1);
      }
      EXPECT_THAT(live(made(cat("bfs:", v), p, m)), Each(m * v));
    }
  }
}

TEST(Schedules, SplitBackwardsTakeWhatTheirFormulasState) {
  for (const auto& [p, m] : sizes) {
    SCOPED_TRACE(cat("p ", p, " m ", m));
    for (const auto& [i, w] : {std::pair{1., 1.}, std::pair{1.3, 0.7}})
      EXPECT_NEAR(makespan(made("zb-h1", p, m), costs(1, 0, i, w)), m * (1 + i + w) + (p - 1) * (1 + i - w), 1e-9);
    EXPECT_EQ(most(live(made("zb-h1", p, m))), std::min(p, m));
    // Rank i works without a gap from i to 3m + i.
    const Timeline h2 = simulate(made("zb-h2", p, m));
    EXPECT_NEAR(h2.makespan_s, 3 * m + p - 1, 1e-9);
    if (m >= 2 * p) {
      EXPECT_EQ(live(made("zb-h2", p, m))[0], 2 * p - 1);
    }
    if (m < 2 * p) continue;
    for (const char* name : {"zb-v", "dualpipe-v"})
      EXPECT_NEAR(makespan(made(name, p, m), costs(0.5, 1, 0.5, 0.5)), 3 * m + (p - 1) / 2., 1e-9) << name;
    EXPECT_EQ(most(live(made("zb-v", p, m))), 2 * p);
    EXPECT_EQ(most(live(made("dualpipe-v", p, m))), 2 * p + 1);
  }
}

TEST(Schedules, ChimeraTakesWhatItsFormulaStates) {
  auto length = [](int p, int m, int pairs) {
    ScheduleShape shape{.ranks = p, .micro_batches = m};
    shape.costs.action = costs(1, 1);
    const Schedule schedule = make_schedule(cat("chimera:", pairs), shape);
    check_schedule(schedule);
    return makespan(schedule, costs(1, 1));
  };
  for (const auto& [p, m] : sizes) EXPECT_DOUBLE_EQ(length(p, m, 1), 2 * m + p - 2) << p << " " << m;
  // 2m + 2 (p / 2f - 1) while m <= p
  EXPECT_DOUBLE_EQ(length(8, 8, 2), 18);
  EXPECT_DOUBLE_EQ(length(8, 16, 2), 34);
  EXPECT_DOUBLE_EQ(length(8, 8, 4), 16);
  EXPECT_DOUBLE_EQ(length(16, 16, 4), 34);
  EXPECT_DOUBLE_EQ(length(16, 16, 2), 38);
}

// With backwards of twice a forward both directions still win over one, and split backwards over ZB-H1.
TEST(Schedules, ChimeraBeatsOneDirection) {
  for (const auto& [p, m] : {std::pair{4, 8}, std::pair{8, 8}, std::pair{8, 32}}) {
    EXPECT_LT(makespan(made("chimera", p, m), costs(1, 2)), 3 * (m + p - 1)) << p << " " << m;
    EXPECT_LE(makespan(made("chimera-split", p, m), costs(1, 2)), 3 * m + p - 1) << p << " " << m;
    EXPECT_LE(most(live(made("chimera", p, m))), p + p / 2);
    EXPECT_LE(most(live(made("chimera-split", p, m))), p);
  }
}

TEST(Schedules, TakeAnyNumberOfMicroBatches) {
  for (int p = 1; p <= 9; ++p)
    for (int m = 1; m <= 3 * p + 1; ++m) {
      SCOPED_TRACE(cat("p ", p, " m ", m));
      for (const char* name : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe-v"})
        EXPECT_EQ(message_of([&] { check_schedule(made(name, p, m)); }), "") << name;
      for (const int v : {2, 3, 4}) {
        EXPECT_EQ(message_of([&] { check_schedule(made(cat("zb-interleaved:", v), p, m)); }), "") << v;
        const Schedule interleaved = made(cat("interleaved:", v), p, m);
        EXPECT_EQ(message_of([&] { check_schedule(interleaved); }), "") << v;
        if (m >= p) {
          EXPECT_NEAR(makespan(interleaved, costs(1. / v, 2. / v)), 3 * m + (p - 1) * 3. / v, 1e-9) << v;
        }
      }
      if (p % 2 == 0) {
        EXPECT_EQ(message_of([&] { check_schedule(made("chimera", p, m)); }), "");
      }
      if (p % 4 == 0) {
        EXPECT_EQ(message_of([&] { check_schedule(made("chimera-split:2", p, m)); }), "");
      }
    }
}

TEST(Schedules, AsynchronousOnesHoldVersions) {
  for (const auto& [p, n] : {std::pair{4, 12}, std::pair{6, 18}}) {
    const ScheduleFacts facts = check_schedule(made("pipedream", p, 1, n));
    EXPECT_TRUE(facts.asynchronous);
    for (int stage = 0; stage < p; ++stage) EXPECT_EQ(facts.versions[static_cast<size_t>(stage)], p - stage);
    for (const int m : {p - 1, p, 2 * p})
      for (const int lag : {0, p - 1}) {
        if (lag && m < p) continue;
        EXPECT_THAT(check_schedule(made(cat("2bw:", lag), p, m, 4)).versions, Each(2)) << m << " " << lag;
      }
    // Fewer micro-batches fill the pipeline less, and are still two versions.
    for (int m = 1; m < p - 1; ++m) EXPECT_THAT(check_schedule(made("2bw", p, m, 4)).versions, Each(2)) << m;
  }
  // Without a flush the pipeline is filled once a window; one step a window is 1F1B with an update.
  EXPECT_DOUBLE_EQ(makespan(made("2bw", 4, 4, 5), costs(1, 2)), 3 * (5 * 4 + 3));
  EXPECT_DOUBLE_EQ(makespan(made("pipedream", 4, 4, 5), costs(1, 2)), 3 * (5 * 4 + 3));
}

/// Every forward of step t reads the weights of step t - 1, on all stages: 2BW's rule W(t+1) = W(t) - rate grad
/// W(t-1).
TEST(Schedules, TwoVersionsAreTheSameOnAllStages) {
  for (const int lag : {0, 2})
    for (const int m : {1, 3, 4, 6})
      for (const auto& list : made(cat("2bw:", lag), 4, m, 5).ranks) {
        int made_so_far = 0;
        for (const Action& one : list) {
          if (one.kind == Kind::update) {
            EXPECT_EQ(one.micro_batch, made_so_far++);
          }
          if (one.kind == Kind::forward) {
            EXPECT_EQ(one.version, std::max(one.micro_batch / m - 1, 0));
          }
          if (one.kind == Kind::forward) {
            EXPECT_GE(made_so_far, one.version);
          }
        }
        EXPECT_EQ(made_so_far, 5);
      }
}

TEST(Schedules, StagesWithSeveralSeats) {
  EXPECT_THAT(parse_seat_widths("2:1"), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  for (const char* text : {"", "0:1", "2:", "a", "2:-1", "99999999"})
    EXPECT_NE(message_of([&] { parse_seat_widths(text); }), "");
  struct Case {
    const char* widths;
    int m;
    std::vector<double> forward, backward;
    double ideal;  // part of it that is reached at least
  };
  // The work of Gemma 3 270M: 63 % in the head. PipeDream's 15:1 for VGG-16.
  for (const Case& one :
       {Case{"15:1", 60, {14, 1}, {28, 2}, 0.75}, Case{"1:1:1:1", 32, {6, 6, 6, 0}, {12, 12, 12, 90.6}, 0.38},
        Case{"1:1:2", 32, {9, 9, 0}, {18, 18, 90.6}, 0.75}, Case{"2:2", 32, {18, 0}, {36, 90.6}, 0.75}})
    for (const char* name : {"1f1b", "zb-h1", "gpipe", "auto"}) {
      SCOPED_TRACE(cat(name, " ", one.widths));
      ScheduleShape shape{.micro_batches = one.m, .seats = parse_seat_widths(one.widths)};
      for (const auto& of : shape.seats) shape.ranks = std::max(shape.ranks, of.back() + 1);
      shape.costs.action = [&](const Action& action) {
        const auto stage = static_cast<size_t>(action.stage);
        if (action.kind == Kind::forward) return one.forward[stage];
        return action.kind == Kind::backward ? one.backward[stage] : one.backward[stage] / 2;
      };
      const Schedule schedule = make_schedule(name, shape);
      EXPECT_TRUE(check_schedule(schedule).ascending);
      EXPECT_EQ(schedule.seats, shape.seats);
      double work = 0;
      for (size_t stage = 0; stage < one.forward.size(); ++stage) work += one.forward[stage] + one.backward[stage];
      if (std::string(name) != "gpipe") {
        EXPECT_GE(work * one.m / shape.ranks / makespan(schedule, shape.costs.action), one.ideal);
      }
    }
  // Any number of micro-batches, also fewer than seats.
  for (int m = 1; m < 8; ++m) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 4, .micro_batches = m, .seats = parse_seat_widths("3:1")});
    EXPECT_EQ(message_of([&] { check_schedule(schedule); }), "") << m;
  }
}

TEST(Schedules, AutoIsNoWorseThanWhatItChoosesFrom) {
  for (const auto& [i, w] : {std::pair{1., 1.}, std::pair{1.3, 0.7}})
    for (const double link : {0., 0.1}) {
      ScheduleShape shape{.ranks = 4, .micro_batches = 8};
      shape.costs.action = costs(1, i + w, i, w);
      shape.costs.link_s = link;
      TimelineOptions timing;
      timing.cost = shape.costs.action;
      timing.link = [&](int, int, const Action&, int) { return LinkTime{link, 0}; };
      auto length = [&](const std::string& name) { return simulate(make_schedule(name, shape), timing).makespan_s; };
      const Schedule best = make_schedule("auto", shape);
      EXPECT_LE(most(live(best)), 4);
      EXPECT_LE(length("auto"), std::min(length("1f1b"), length("zb-h1")) + 1e-9);
      EXPECT_LE(most(live(make_schedule("auto-v", shape))), 2 * 4 + 3);
      shape.costs.most_live = 7;  // zb-h2's memory
      EXPECT_LE(length("auto"), length("zb-h2") + 1e-9);
      shape.costs.most_live = 2;
      EXPECT_LE(most(live(make_schedule("auto", shape))), 2);
    }
}

TEST(Schedules, ARowAnswersWhatACallerAsks) {
  for (const ScheduleRow& row : schedule_rows()) {
    SCOPED_TRACE(row.name);
    EXPECT_NE(row.about, "");
    for (const int p : {1, 2, 4, 8}) {
      if (p == 1 && row.name.starts_with("chimera")) continue;
      const ScheduleTerms terms = schedule_terms(row.name, p);
      for (const int m : {1, 5, 2 * p}) {
        const Schedule schedule = made(std::string(row.name), p, m, terms.asynchronous ? 3 : 1);
        const ScheduleFacts facts = check_schedule(schedule);
        EXPECT_EQ(schedule.seats, terms.seats);
        EXPECT_EQ(schedule.stages, static_cast<int32_t>(terms.seats.size()));
        EXPECT_EQ(facts.asynchronous, terms.asynchronous);
        EXPECT_EQ(schedule.micro_batches, terms.asynchronous ? 3 * m : m);
        if (facts.whole) {
          EXPECT_TRUE(terms.whole);
        }
        if (facts.split) {
          EXPECT_TRUE(terms.split);
        }
        EXPECT_EQ(made(std::string(row.name), p, m, terms.asynchronous ? 3 : 1), schedule)
            << "equal lists on all ranks";
      }
    }
  }
}

TEST(Schedules, RefuseWhatTheyCannotBe) {
  const std::tuple<std::string, ScheduleShape, std::string> cases[] = {
      {"zb-h3", {.ranks = 2}, "there is no schedule \"zb-h3\""},
      {"", {.ranks = 2}, "there is no schedule \"\""},
      {"interleaved:x", {.ranks = 2}, "the number is stages a rank, at least 1"},
      {"interleaved:0", {.ranks = 2}, "at least 1"},
      {"interleaved:1048576", {.ranks = 2}, "more than 1048576 stages"},
      {"1f1b:2", {.ranks = 2}, "schedule 1f1b has no number"},
      {"1f1b", {.ranks = 0}, "0 pipeline ranks"},
      {"1f1b", {.ranks = 2, .micro_batches = 0}, "1 steps of 0 micro-batches"},
      {"1f1b", {.ranks = 2, .micro_batches = 1, .steps = 2}, "synchronous"},
      {"chimera:2", {.ranks = 6, .micro_batches = 4}, "4 pipelines, which do not divide 6 ranks"},
      {"interleaved", {.ranks = 3, .micro_batches = 4, .seats = {{0, 1}, {2}}}, "cannot have several seats a stage"},
      {"1f1b", {.ranks = 3, .micro_batches = 4, .seats = {{0, 1}, {1}}}, "3 seats on 2 ranks"},
      {"1f1b", {.ranks = 3, .micro_batches = 4, .seats = {{0, 1}, {3}}}, "a seat on rank 3 of 3"},
      {"1f1b", {.ranks = 2, .micro_batches = 4, .seats = {{0, 1}, {}}}, "a stage has no seat"},
  };
  for (const auto& [name, shape, why] : cases)
    EXPECT_THAT(message_of([&, name = name, shape = shape] { make_schedule(name, shape); }), HasSubstr(why)) << name;
}

TEST(Schedules, MakeTheseLists) {
  std::string text;
  for (const auto& [name, p, m, steps] :
       std::vector<std::tuple<std::string, int, int, int>>{{"naive", 2, 2, 1},
                                                           {"gpipe", 3, 3, 1},
                                                           {"1f1b", 4, 6, 1},
                                                           {"interleaved:2", 2, 5, 1},
                                                           {"bfs:2", 2, 3, 1},
                                                           {"zb-h1", 4, 6, 1},
                                                           {"zb-h2", 3, 6, 1},
                                                           {"zb-v", 3, 7, 1},
                                                           {"zb-interleaved:2", 2, 4, 1},
                                                           {"dualpipe-v", 2, 5, 1},
                                                           {"chimera", 4, 6, 1},
                                                           {"chimera-split", 4, 4, 1},
                                                           {"pipedream", 3, 1, 5},
                                                           {"2bw", 3, 3, 3},
                                                           {"2bw:2", 3, 3, 3},
                                                           {"auto", 3, 5, 1}}) {
    const Schedule schedule = made(name, p, m, steps);
    EXPECT_EQ(parse_schedule(schedule.text()), schedule) << name;
    text += cat("# ", name, "\n", schedule.text(), "\n");
  }
  expect_golden("tests/unit/schedule/lists.golden", text, "unit.schedule");
}

}  // namespace
}  // namespace plait::test
