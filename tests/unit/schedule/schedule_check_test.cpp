// The verifier: a message each, the facts, and random faults against a check by brute force.
#include "core/schedule/schedule_check.h"

#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "tests/unit/schedule/schedule_cases.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string fault_of(const std::string& text, const CheckOptions& options = {}) {
  return message_of([&] { check_schedule(parse_schedule(text), options); });
}

TEST(ScheduleCheck, NamesTheFault) {
  const std::string two = "stages 2 micro-batches 2 seats 0 1\n";
  const std::pair<std::string, const char*> cases[] = {
      {"stages 0 micro-batches 2 seats\n", "0 stages, 2 micro-batches and 0 ranks"},
      {"stages 1 micro-batches 1 seats 3\n0F0 0B0", "stage 0 has a seat on rank 3, and there are 1 ranks"},
      {"stages 1 micro-batches 1 seats 0,0\n0F0 0B0", "stage 0 has two seats on rank 0"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1B0 1F1", "rank 1 lacks 1B1"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1F1 1B1 1B0 1B0", "rank 1, action 4 (1B0): it is action 3, too"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1F1 1I1 1I0 1W0", "rank 1 lacks 1W1"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1F1 1I1 1W1 1W0", "rank 1 lacks 1I0"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1B0 1B1 1W1", "rank 1, action 3 (1W1): action 2 is the whole backward"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1F1 1I1 1W1 1I0 1B0",
       "rank 1, action 5 (1B0): action 4 is a part of the backward already"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1B0 1B1", "rank 1 lacks 1F1"},
      {two + "0F0 0F1 0B0 0B1 1F0\n1F0 1B0 1F1 1B1", "rank 0, action 4 (1F0): it belongs to rank 1"},
      {two + "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1 2F0", "rank 1, action 4 (2F0): there is no stage 2 of 2"},
      {two + "0F0 0F1 0B0 0B1 0F2\n1F0 1B0 1F1 1B1", "rank 0, action 4 (0F2): there is no micro-batch 2 of 2"},
      {two + "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0",
       "ranks wait for each other: rank 0, action 1 (0B0), waits for 1B0 of rank 1, which waits for 0F1 of rank 0"},
      {two + "0B0 0F0 0F1 0B1\n1F0 1B0 1F1 1B1", "rank 0, action 0 (0B0): it needs 0F0, which is action 1"},
      {two + "0F0 0F1 0W0 0I0 0B1\n1F0 1B0 1F1 1B1", "rank 0, action 2 (0W0): it needs 0I0, which is action 3"},
      {"stages 2 micro-batches 1 seats 0 0\n1F0 0F0 1B0 0B0",
       "rank 0, action 0 (1F0): it needs 0F0, which is action 1"},
      {"stages 2 micro-batches 1 seats 0 0\n0F0 1F0 0B0 1B0",
       "rank 0, action 2 (0B0): it needs 1B0, which is action 3"},
      {two + "0F0@1 0B0 0U0 0F1 0B1\n1F0 1B0 1F1 1B1",
       "rank 0, action 0 (0F0@1): version 1 is not made yet: 0 updates"},
      {two + "0F0 0F1 0B0 0B1 0U1\n1F0 1B0 1F1 1B1", "rank 0, action 4 (0U1): updates count from 0: it is number 0"},
      {two + "0F0 0F1 0B0 0B1 1U0\n1F0 1B0 1F1 1B1", "rank 0, action 4 (1U0): the rank has no seat of that stage"},
      {"stages 1 micro-batches 2 seats 0,1\n0F0 0B0 0U0\n0F1 0B1", "rank 1 lacks 0U0"},
  };
  for (const auto& [text, why] : cases) EXPECT_THAT(fault_of(text), HasSubstr(why)) << text;
  // Many more sets than actions.
  EXPECT_THAT(fault_of("stages 1 micro-batches 16777216 seats 0\n0F0 0B0 0F1"), HasSubstr("rank 0 lacks 0B1"));
}

TEST(ScheduleCheck, NamesACycleOfMoreThanTwo) {
  EXPECT_THAT(fault_of("stages 3 micro-batches 2 seats 0 1 2\n0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2B1"),
              HasSubstr("rank 0, action 1 (0B0), waits for 1B0 of rank 1, which waits for 0F1 of rank 0"));
  EXPECT_THAT(
      fault_of("stages 6 micro-batches 1 seats 0 1 2 0 1 2\n0F0 0B0 3F0 3B0\n1F0 1B0 4F0 4B0\n2F0 2B0 5F0 5B0"),
      HasSubstr("rank 0, action 1 (0B0), waits for 1B0 of rank 1, which waits for 2B0 of rank 2, which waits for "
                "3B0 of rank 0"));
  // Rank 0 waits for the cycle, and is no part of it.
  EXPECT_THAT(fault_of("stages 3 micro-batches 2 seats 0 1 2\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n2F0 2F1 2B0 2B1"),
              HasSubstr("other: rank 1, action 1 (1B0), waits for 2B0 of rank 2, which waits for 1F1 of rank 1"));
}

TEST(ScheduleCheck, LimitsVersionsAndPlaces) {
  const Schedule pipedream = made("pipedream", 4, 1, 12);
  EXPECT_EQ(message_of([&] { check_schedule(pipedream, {.most_versions = 4}); }), "");
  EXPECT_THAT(
      message_of([&] { check_schedule(pipedream, {.most_versions = 3}); }),
      HasSubstr(
          "rank 0, action 11 (0U2): its stage would hold 4 versions, at most 3 can be held: version 0 is gone"));
  const std::string gone = "stages 1 micro-batches 3 seats 0\n0F0 0B0 0U0 0F1 0B1 0U1 0F2@0 0B2";
  EXPECT_EQ(fault_of(gone, {.most_versions = 2}), "");
  EXPECT_THAT(fault_of(gone, {.most_versions = 1}), HasSubstr("version 0 is gone when action 7 (0B2) reads it"));

  const Schedule bfs = made("bfs:2", 4, 16);
  EXPECT_EQ(check_schedule(bfs).places, 4);
  EXPECT_EQ(message_of([&] { check_schedule(bfs, {.most_places = 4}); }), "");
  EXPECT_THAT(message_of([&] { check_schedule(bfs, {.most_places = 3}); }),
              testing::AllOf(HasSubstr("3 places for messages of a pair of ranks are too few, it needs 4: rank "),
                             HasSubstr("waits for a place to send ")));
}

TEST(ScheduleCheck, TellsPlacesOfAllGenerators) {
  struct Row {
    const char* name;
    int p, m, places;
    bool rendezvous;
  };
  for (const Row& row :
       {Row{"naive", 4, 8, 1, true}, Row{"gpipe", 8, 32, 1, true}, Row{"1f1b", 8, 32, 1, false},
        Row{"interleaved:2", 4, 16, 1, false}, Row{"bfs:2", 4, 16, 4, false}, Row{"zb-h1", 8, 32, 1, false},
        Row{"zb-v", 8, 32, 2, false}, Row{"dualpipe-v", 8, 32, 2, false}}) {
    const ScheduleFacts facts = check_schedule(made(row.name, row.p, row.m));
    EXPECT_EQ(facts.places, row.places) << row.name;
    EXPECT_EQ(facts.rendezvous, row.rendezvous) << row.name;
    EXPECT_TRUE(facts.ascending) << row.name;
    EXPECT_LE(facts.set_aside, 3) << row.name;
  }
  EXPECT_EQ(check_schedule(made("pipedream", 8, 1, 32)).places, 1);
  EXPECT_EQ(check_schedule(made("zb-v", 8, 32)).set_aside, 1);
  EXPECT_EQ(check_schedule(made("dualpipe-v", 8, 32)).set_aside, 1);
  EXPECT_EQ(check_schedule(made("chimera", 8, 32)).places, 3);
  EXPECT_EQ(check_schedule(made("1f1b", 1, 4)).places, 0);
}

TEST(ScheduleCheck, CountsLifetimes) {
  const Schedule s = parse_schedule("stages 1 micro-batches 3 seats 0\n0F0 0F1 0I0 0I1 0F2 0W0 0I2 0W1 0W2");
  const ScheduleFacts facts = check_schedule(s);
  EXPECT_EQ(facts.ranks[0], (LivePeaks{2, 3, 2}));
  EXPECT_EQ(facts.seats[0][0], facts.ranks[0]);
  EXPECT_FALSE(facts.whole);
  EXPECT_TRUE(check_schedule(s).ascending);
  const ScheduleFacts other = check_schedule(parse_schedule("stages 1 micro-batches 2 seats 0\n0F0 0F1 0B1 0B0"));
  EXPECT_FALSE(other.ascending);
  EXPECT_EQ(other.ranks[0], (LivePeaks{2, 2, 0}));
  // A rank's peak is not the sum of its stages' peaks.
  const ScheduleFacts vee = check_schedule(made("zb-v", 4, 12));
  EXPECT_EQ(vee.ranks[0].forward_to_weight, 8);
  EXPECT_EQ(vee.seats[0][0].forward_to_weight, 8);
  EXPECT_GE(vee.seats[7][0].forward_to_weight, 1);
}

// Edges that skip stages, and one whose values a stage reads that comes earlier in the numbering.
TEST(ScheduleCheck, TakesAnyEdges) {
  const Schedule s = made("1f1b", 4, 8);
  CheckOptions skips;
  skips.edges = chain_edges(4);
  for (const StageEdge edge : {StageEdge{0, 2}, StageEdge{0, 3}, StageEdge{1, 3}}) skips.edges->push_back(edge);
  const ScheduleFacts facts = check_schedule(s, skips);
  // What stage 0 sends to stage 3 waits there for what takes the long way.
  EXPECT_GE(facts.places, 1);
  EXPECT_EQ(facts.ranks, check_schedule(s).ranks);
  auto message = [&](std::vector<StageEdge> edges) {
    CheckOptions options;
    options.edges = std::move(edges);
    return message_of([&] { check_schedule(s, options); });
  };
  EXPECT_THAT(message({{0, 4}}), HasSubstr("edge from stage 0 to stage 4: there are 4 stages"));
  EXPECT_THAT(message({{1, 1}}), HasSubstr("an edge connects two stages"));
  EXPECT_THAT(message({{0, 1}, {0, 1}}), HasSubstr("it is there twice"));
  EXPECT_THAT(message({{0, 1}, {1, 0}}), HasSubstr("ranks wait for each other"));
  // Stages in the reverse order of their numbers.
  EXPECT_EQ(
      fault_of("stages 2 micro-batches 1 seats 0 1\n0F0 0B0\n1F0 1B0", {.edges = std::vector<StageEdge>{{1, 0}}}),
      "");
  EXPECT_EQ(fault_of("stages 2 micro-batches 1 seats 0 1\n0F0 0B0\n1F0 1B0", {.edges = std::vector<StageEdge>{}}),
            "");
}

// The update of a stage with several seats is one that all of them make together.
TEST(ScheduleCheck, UpdatesOfSeveralSeatsMeet) {
  const std::string head = "stages 2 micro-batches 2 seats 0,1 2\n";
  EXPECT_EQ(fault_of(head + "0F0 0B0 0U0\n0F1 0B1 0U0\n1F0 1B0 1F1 1B1 1U0"), "");
  EXPECT_THAT(
      fault_of("stages 2 micro-batches 4 seats 0,1 2\n0F0 0B0 0U0 0F2 0B2\n0F1 0B1 0F3 0B3 0U0\n"
               "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"),
      HasSubstr("rank 0, action 2 (0U0), waits for 0U0 of rank 1, which waits for 1B3 of rank 2, which waits for 0F2 "
                "of rank 0"));
}

/// One random fault.
void break_somewhere(Schedule& s, std::mt19937& random) {
  auto& list = s.ranks[random() % s.ranks.size()];
  if (list.size() < 2) return;
  const size_t at = random() % list.size(), other = random() % list.size();
  switch (random() % 8) {
    case 0: list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); return;
    case 1: list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), list[other]); return;
    case 2: ++list[at].micro_batch; return;
    case 3: list[at].stage = static_cast<int32_t>(random() % static_cast<unsigned>(s.stages + 1)); return;
    case 4: list[at].kind = static_cast<Kind>(random() % 4); return;
    case 5: {
      auto& its = s.ranks[random() % s.ranks.size()];
      its.push_back(list[at]);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    default: std::swap(list[at], list[other]);
  }
}

TEST(ScheduleCheck, AgreesWithBruteForceOnFaults) {
  std::mt19937 random(3);
  int valid = 0, broken = 0;
  for (const ScheduleRow& row : schedule_rows()) {
    if (row.asynchronous) continue;
    for (const auto& [p, m] : {std::pair{2, 3}, std::pair{4, 6}}) {
      const Schedule whole = made(std::string(row.name), p, m);
      EXPECT_TRUE(is_valid(whole)) << row.name;
      for (int i = 0; i < 150; ++i) {
        Schedule one = whole;
        for (unsigned faults = 1 + random() % 2; faults > 0; --faults) break_somewhere(one, random);
        const bool right = is_valid(one);
        const std::string why = message_of([&] { check_schedule(one); });
        ASSERT_EQ(why == "", right) << row.name << ": " << why << "\n" << one.text();
        ++(right ? valid : broken);
      }
    }
  }
  EXPECT_GT(valid, 100);
  EXPECT_GT(broken, 1000);
}

/// The least number of places by brute force: every rank in turn, as far as it comes, with a queue a pair.
TEST(ScheduleCheck, RunsWithItsPlacesAndNoFewer) {
  for (const ScheduleRow& row : schedule_rows()) {
    const Schedule schedule = made(std::string(row.name), 4, 6, row.asynchronous ? 2 : 1);
    const ScheduleFacts facts = check_schedule(schedule);
    TimelineOptions options;
    options.cost = costs(1, 2);
    options.places = facts.places;
    EXPECT_GT(simulate(schedule, options).makespan_s, 0) << row.name;
    if (facts.places < 2) continue;
    options.places = facts.places - 1;
    EXPECT_THROW(simulate(schedule, options), Error) << row.name;
  }
}

TEST(ScheduleCheck, IsFast) {
  for (const char* name : {"1f1b", "zb-v", "dualpipe-v", "interleaved:4"}) {
    const Schedule schedule = made(name, 64, 512);
    const auto start = std::chrono::steady_clock::now();
    check_schedule(schedule);
    simulate(schedule);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 2 * machine_load())
        << name;
  }
}

}  // namespace
}  // namespace plait::test
