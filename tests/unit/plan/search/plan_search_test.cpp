#include "core/plan/search/plan_search.h"
#include "core/plan/search/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

PlanTask task_of(const std::string& shape, int64_t batch, const std::string& machine) {
  const PlanWorld& world = PlanWorld::get();
  return {.decoder = {world.options(), parse_decoder_shape(shape)},
          .machine = open_machine(machine),
          .batch = batch,
          .work = DType::bf16};
}

const char* const llama70 =
    "family=llama,layers=80,hidden=8192,heads=64,kv_heads=8,feed_forward=28672,vocabulary=128256,sequence=4096";

const char* const small =
    "family=llama,layers=8,hidden=512,heads=8,kv_heads=4,feed_forward=1408,vocabulary=4096,sequence=512";

/// Bounds only leave out what is worse: the best of all plans that fit, each simulated, is the planner's.
TEST(PlanSearch, FindsTheBestOfAllThatFit) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  PlanLimits limits{.ranks = 8, .memory_bytes = 1.2e8};
  const SearchResult found = search_plan(pricer, limits);
  double best = 1e9;
  int fitting = 0, large = 0;
  std::vector<Plan> plans = candidate_plans(pricer.task(), limits);
  for (size_t i = 0, all = plans.size(); i < all; ++i)
    for (const Plan& one : plans_with_seats(pricer, limits, Plan(plans[i]))) plans.push_back(one);
  for (const Plan& plan : plans) {
    const StepPrice price = pricer.price(plan);
    EXPECT_LE(bound_of(pricer, plan).least_bytes, price.most_bytes()) << plan.mesh();
    ++(price.most_bytes() <= limits.memory_bytes ? fitting : large);
    if (price.most_bytes() <= limits.memory_bytes) best = std::min(best, price.step_s);
  }
  EXPECT_GT(fitting, 20);
  EXPECT_GT(large, 20);
  EXPECT_NEAR(found.best.step_s, best, 1e-3 * best);
  EXPECT_LE(found.best.most_bytes(), limits.memory_bytes);
  EXPECT_LT(found.simulated, fitting + large);
}

TEST(PlanSearch, NeighboursDifferInOneRespectAndAreNoBetter) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  const SearchResult found = search_plan(pricer, {.ranks = 8, .memory_bytes = 2e8});
  ASSERT_FALSE(found.neighbours.empty());
  for (const Neighbour& one : found.neighbours) {
    EXPECT_FALSE(one.lost.empty());
    if (one.step_s > 0) EXPECT_GE(one.step_s, found.best.step_s) << one.changed;
    else EXPECT_GT(one.bytes, 2e8) << one.changed;
  }
}

TEST(PlanSearch, WhatIsGivenIsKept) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  const SearchResult found = search_plan(pricer, {.ranks = 8,
                                                  .pipeline = 4,
                                                  .tensor = 1,
                                                  .micro_batch = 512,
                                                  .zero = 1,
                                                  .recompute = Recompute::full,
                                                  .schedule = "zb-h1"});
  EXPECT_EQ(found.best.plan.mesh(), "pipeline=4,data=2");
  EXPECT_EQ(found.best.plan.schedule, "zb-h1");
  EXPECT_EQ(found.best.micro_batches, 8);
}

/// Seeds that some meshes do not allow leave these out; those that none allows are told.
TEST(PlanSearch, GivenSeedsAreKept) {
  const std::string experts = std::string(small) + ",experts=4,experts_used=2";
  PlanPricer pricer(task_of(experts, 16, "a100"));
  PlanLimits limits{.ranks = 4, .zero = 0, .recompute = Recompute::off, .schedule = "1f1b"};
  limits.seeds = {"expert_data", "sequence"};
  const SearchResult found = search_plan(pricer, limits);
  EXPECT_GT(found.best.plan.data, 1);
  EXPECT_EQ(found.best.plan.seeds, limits.seeds);
  limits.seeds = {"expart"};
  limits.tensor = 2;
  EXPECT_THROW(search_plan(pricer, limits), Error);
  limits.seeds.clear();
  limits.tensor.reset();
  EXPECT_LE(search_plan(pricer, limits).best.step_s, found.best.step_s);
}

/// Whatever divides the samples of a data rank, in and without a pipeline.
TEST(PlanSearch, MicroBatchesAreAnyNumberOfSamples) {
  PlanPricer pricer(task_of(small, 18, "a100"));
  for (const auto& [pipeline, data] : {std::pair(1, 2), std::pair(2, 1)}) {
    PlanLimits limits{.ranks = 2, .pipeline = pipeline, .data = data, .tensor = 1};
    const SearchResult found = search_plan(pricer, limits);
    for (const int64_t samples : {1, 2, 3, 6, 9}) {
      if (18 / data % samples || (pipeline > 1 && samples == 9)) continue;
      limits.micro_batch = samples * 512;
      EXPECT_LE(found.best.step_s, search_plan(pricer, limits).best.step_s * (1 + 1e-9))
          << pipeline << " " << samples;
    }
    EXPECT_EQ(found.best.plan.micro_batch / 512 % 3, 0) << found.best.plan.micro_batch;
  }
}

/// What cannot be is told as such, not as what does not fit.
TEST(PlanSearch, TellsWhyNoPlanCanBe) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  const auto refused = [&](const PlanLimits& limits, std::string_view part) {
    try {
      search_plan(pricer, limits);
      ADD_FAILURE() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      EXPECT_THAT(std::string(error.what()), testing::HasSubstr(part));
    }
  };
  refused({.ranks = 4, .pipeline = 4, .schedule = "1f1b", .layers = {3, 3, 3, 3}},
          "4 stages of 12 layers, expected 4 of 8");
  refused({.ranks = 2, .micro_batch = 1500}, "1500 tokens does not divide");
  refused({.ranks = 2, .micro_batch = 64}, "64 tokens holds no sample, which has 512");
  refused({.ranks = 2, .pipeline = 2, .schedule = "interleaved:99"}, "8 layers");
  refused({.ranks = 4, .tensor = 3}, "no mesh of 4 ranks with tensor=3");
  refused({.ranks = 4, .seeds = {"bogus"}}, "bogus");
  refused({.ranks = 4, .seeds = {"expert"}}, "no experts");
  PlanTask alone = task_of(small, 16, "a100");
  alone.machine.levels.clear();
  PlanPricer of_one(alone);
  EXPECT_THROW(search_plan(of_one, {.ranks = 8}), Error);
  EXPECT_EQ(search_plan(of_one, {.ranks = 1}).best.plan.ranks(), 1);
}

/// Adapters need no gradients of the weights under them.
TEST(PlanSearch, AdaptersHaveFewerOperations) {
  PlanTask task = task_of(small, 16, "a100");
  const double all =
      PlanPricer(task).price({.micro_batch = 2048}).mfu * PlanPricer(task).price({.micro_batch = 2048}).step_s;
  task.training.lora.rank = 8;
  const StepPrice adapted = PlanPricer(task).price({.micro_batch = 2048});
  EXPECT_NEAR(adapted.mfu * adapted.step_s, all * 2 / 3, 0.05 * all);
}

TEST(PlanSearch, SaysWhatWouldFit) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  try {
    search_plan(pricer, {.ranks = 2, .memory_bytes = 1e6});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_THAT(error.message(), testing::AllOf(testing::HasSubstr("the least takes"), testing::HasSubstr("1 MB")));
  }
  EXPECT_THROW(search_plan(pricer, {.ranks = 11}), Error);
}

/// Layers that ranks do not divide: two stages of three layers on two ranks each beat stages of two, two, one and one.
TEST(PlanSearch, StagesGetSeveralSeatsWhereRanksDoNotDivideTheLayers) {
  PlanPricer pricer(task_of(
      "family=llama,layers=6,hidden=2048,heads=16,feed_forward=5632,vocabulary=1024,sequence=1024", 64, "h100"));
  PlanLimits limits{.ranks = 4, .pipeline = 4, .schedule = "1f1b"};
  const SearchResult found = search_plan(pricer, limits);
  EXPECT_EQ(found.best.plan.seats_text(), "2:2");
  EXPECT_EQ(found.best.plan.layers, (std::vector<int64_t>{3, 3}));
  const auto own = std::find_if(found.neighbours.begin(), found.neighbours.end(),
                                [](const Neighbour& one) { return one.changed == "one seat a stage"; });
  // What differs in seats and cut is no neighbour; its price is among the others.
  EXPECT_TRUE(own == found.neighbours.end() || own->step_s >= found.best.step_s);
  Plan straight = found.best.plan;
  straight.seats.clear();
  straight.layers.clear();
  EXPECT_GT(pricer.price(straight).step_s, found.best.step_s);
  limits.seats = {3, 1};
  const StepPrice given = search_plan(pricer, limits).best;
  EXPECT_EQ(given.plan.seats_text(), "3:1");
  EXPECT_EQ(given.plan.layers.size(), 2U);
  limits.schedule = "interleaved:2";
  EXPECT_THROW(search_plan(pricer, limits), Error);
}

/// A full pipeline: a step takes the slowest stage's work and update, and weights are there twice (Narayanan et al. 2021).
TEST(PlanSearch, AsynchronousStepsHaveNoBubble) {
  PlanPricer pricer(task_of(small, 16, "a100"));
  Plan plan{.pipeline = 4, .schedule = "2bw", .layers = {2, 2, 2, 2}, .micro_batch = 512};
  const StepPrice full = pricer.price(plan);
  const StageTable& table = pricer.table(plan);
  double slowest = 0;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const StageCosts costs = table.stage(2 * stage, 2, stage == 0, stage == 3);
    slowest = std::max(slowest, 16 * work_seconds(costs, false) + costs.finish_s + costs.reduce_s);
  }
  EXPECT_NEAR(full.step_s, slowest, 0.02 * slowest);
  plan.schedule = "1f1b";
  const StepPrice flushed = pricer.price(plan);
  EXPECT_GT(flushed.step_s, 1.1 * full.step_s);
  EXPECT_GT(flushed.bubble, full.bubble);
  EXPECT_NEAR(full.memory[1].weights, 2 * flushed.memory[1].weights, 1);
  plan.schedule = "gpipe";
  EXPECT_GE(pricer.price(plan).step_s, 0.999 * flushed.step_s);
  plan.schedule = "pipedream";
  const StepPrice stashed = pricer.price(plan);
  EXPECT_LE(stashed.step_s, 1.02 * flushed.step_s);
  EXPECT_NEAR(stashed.memory[0].weights, 2 * flushed.memory[0].weights, 1);
  // A step for each micro-batch: the first stage has as many versions as there are stages.
  PlanPricer single(task_of(small, 1, "a100"));
  EXPECT_NEAR(single.price(plan).memory[0].weights, 4 * flushed.memory[0].weights, 1);
}

/// 70 billion parameters on 64 devices: no rank holds all states, and tensor parallelism stays within a node.
TEST(PlanSearch, LargeModelsAreCut) {
  PlanPricer pricer(task_of(llama70, 128, "h100"));
  const SearchResult found = search_plan(pricer, {.ranks = 64, .schedule = "1f1b"});
  EXPECT_LE(found.best.plan.tensor, 8);
  EXPECT_GT(found.best.plan.tensor * found.best.plan.pipeline, 8);
  EXPECT_LE(found.best.most_bytes(), 0.95 * pricer.task().machine.device.memory_bytes);
  EXPECT_GT(found.best.mfu, 0.3);
  EXPECT_LT(found.best.mfu, 0.6);
}

}  // namespace
}  // namespace plait::test
