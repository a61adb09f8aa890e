// Meshes for generation, pipeline stages among them.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plan/generate/generation_plans.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

std::vector<GenerationPlan> plans_of(const std::string& sizes, const GenerationLoad& load) {
  const PlanWorld& world = PlanWorld::get();
  return generation_plans({world.options(), parse_decoder_shape(sizes)}, load,
                          {world.ops, open_machine("a100"), DType::bf16, 0});
}

const GenerationPlan& plan_with(const std::vector<GenerationPlan>& plans, int64_t pipeline, int64_t tensor) {
  for (const GenerationPlan& one : plans)
    if (one.pipeline == pipeline && one.tensor == tensor) return one;
  throw Error(Code::internal, cat("no plan has pipeline=", pipeline, " and tensor=", tensor));
}

// One key head, which tensor ranks cannot share, and 16 layers, which four ranks can.
constexpr const char* one_key_head =
    "family=llama,layers=16,hidden=2048,heads=16,kv_heads=1,feed_forward=8192,vocabulary=32000,sequence=4096";

/// A token passes all stages, so its latency is that of one rank and messages; groups in flight make up for it.
TEST(GenerationPlans, StagesDivideBytesAndKeepThroughput) {
  const double memory = 1e12;
  const GenerationPlan one =
      plans_of(one_key_head, {.ranks = 1, .batch = 4, .prompt = 256, .memory_bytes = memory})[0];
  const auto plans = plans_of(one_key_head, {.ranks = 4, .batch = 16, .prompt = 256, .memory_bytes = memory});
  const GenerationPlan& stages = plan_with(plans, 4, 1);
  EXPECT_EQ(stages.data, 1);
  EXPECT_EQ(stages.groups, 4);
  EXPECT_EQ(stages.sequences, 16);
  // Four times the sequences, a quarter of the layers; the last stage has the head and fewer layers.
  EXPECT_NEAR(stages.bytes() / one.bytes(), 1.0 / 4, 0.05);
  EXPECT_GT(stages.price.token_s, one.price.token_s) << "messages";
  EXPECT_LT(stages.price.token_s, 1.2 * one.price.token_s) << "the slowest stage serves four groups";
  EXPECT_NEAR(stages.price.token_s, 4 * stages.price.slowest_s, 1e-9);
  EXPECT_GT(stages.tokens_per_second(), 3.3 * one.tokens_per_second()) << "four groups of four sequences";
  // The last group follows by three times the slowest stage, which has five layers of 16, or four and the head.
  EXPECT_GT(stages.price.prompt_s / one.price.prompt_s, 1 + 3.0 / 4);
  EXPECT_LT(stages.price.prompt_s / one.price.prompt_s, 1.05 + 3 * 5.0 / 16);
}

TEST(GenerationPlans, ASingleRequestFillsOneStageAtATime) {
  const auto plans = plans_of(one_key_head, {.ranks = 4, .batch = 1, .prompt = 256, .memory_bytes = 1e12});
  const GenerationPlan &stages = plan_with(plans, 4, 1), &replicas = plan_with(plans, 1, 1);
  EXPECT_EQ(stages.groups, 1);
  EXPECT_EQ(plans[0].pipeline, 1) << "the fastest token is not one of stages";
  EXPECT_GT(stages.price.token_s, replicas.price.token_s);
}

/// Replicas that have fewer sequences than others, or none, generate no more tokens; a mesh that is given is the only one.
TEST(GenerationPlans, OfAnyBatchAndOfGivenMeshes) {
  GenerationLoad load{.ranks = 8, .batch = 9, .prompt = 64, .memory_bytes = 1e12};
  for (const int64_t batch : {1, 9}) {
    load.batch = batch;
    for (const GenerationPlan& one : plans_of(one_key_head, load))
      EXPECT_NEAR(one.tokens_per_second() * one.price.token_s, static_cast<double>(batch), 1e-9) << one.data;
  }
  load.pipeline = 2, load.data = 4;
  const auto given = plans_of(one_key_head, load);
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0].pipeline, 2);
  EXPECT_EQ(given[0].data, 4);
  load.data = 3;
  EXPECT_THROW(plans_of(one_key_head, load), Error);
}

/// Three ranks cannot have equally many of 16 layers: the largest stage holds and takes most.
TEST(GenerationPlans, StagesNeedNotHaveEquallyManyLayers) {
  const auto plans = plans_of(one_key_head, {.ranks = 3, .batch = 12, .prompt = 256, .memory_bytes = 1e12});
  const GenerationPlan &stages = plan_with(plans, 3, 1), &replicas = plan_with(plans, 1, 1);
  EXPECT_GT(stages.bytes(), 0.33 * replicas.price.weight_bytes);
  EXPECT_LT(stages.price.weight_bytes, 0.45 * replicas.price.weight_bytes);
  EXPECT_GE(stages.price.token_s, 3 * stages.price.slowest_s * (1 - 1e-9));
  EXPECT_LE(3 * stages.price.slowest_s, 1.3 * replicas.price.token_s);
  // As many as there are layers, and a head.
  const auto deep = plans_of(one_key_head, {.ranks = 16, .batch = 16, .prompt = 256, .memory_bytes = 1e12});
  EXPECT_EQ(plan_with(deep, 16, 1).groups, 16);
}

/// Where replicas do not fit, stages are what is left.
TEST(GenerationPlans, StagesFitWhereReplicasDoNot) {
  const GenerationLoad load{.ranks = 2, .batch = 2, .prompt = 256, .memory_bytes = 1.5e9};
  const auto plans = plans_of(one_key_head, load);
  ASSERT_FALSE(plans.empty());
  for (const GenerationPlan& one : plans) EXPECT_EQ(one.pipeline, 2);
  EXPECT_LE(plans[0].bytes(), load.memory_bytes);
  EXPECT_GT(parse_decoder_shape(one_key_head).parameters() * 2, load.memory_bytes);
}

}  // namespace
}  // namespace plait::test
