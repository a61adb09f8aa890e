// Costs of stages against what is known of a transformer by its sizes.
#include "core/plan/stages/stage_costs.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/plan_world.h"

namespace plait {
namespace {

constexpr double h = 12288, s = 2048, v = 51200;

struct Case {
  int64_t data = 1, tensor = 1, micro_batch = 2048;
  int zero = 0;
  Recompute recompute = Recompute::off;
};

StageTable table_of(const Case& one, const Machine& machine) {
  static const DecoderShape gpt =
      parse_decoder_shape("family=gpt,layers=96,hidden=12288,heads=96,vocabulary=51200,sequence=2048");
  const test::PlanWorld& world = test::PlanWorld::get();
  const StageProbe probe({world.options(), gpt}, {}, {one.tensor, one.data > 1, one.zero, one.recompute});
  return probe.price({one.data, one.micro_batch}, {world.ops, machine, DType::f16, gpt.sequence});
}

/// Narayanan et al. 2021, section 3.2: 24 s h^2 (1 + s / 6h) of a layer's forward pass; here half of attention's pairs count.
TEST(StageCosts, FlopsOfALayerAreThoseOfTheFormula) {
  const Machine machine = open_machine("a100");
  const double linear = 24 * s * h * h, attention = 4 * s * s * h / 2;
  const StageTable kept = table_of({.micro_batch = 2048}, machine);
  EXPECT_NEAR(kept.layer(0).of(Action::Kind::forward).flops, linear + attention, 1e-6 * linear);
  // Scores are computed again: five products instead of four.
  EXPECT_NEAR(kept.layer(0).of(Action::Kind::backward).flops, 2 * linear + 2.5 * attention, 1e-6 * linear);
  // The residual stream is kept after attention, too: the products before it, 2 s h^2 and 8 s h^2, are not done again.
  const StageTable full = table_of({.micro_batch = 2048, .recompute = Recompute::full}, machine);
  EXPECT_NEAR(full.layer(0).of(Action::Kind::backward).flops, 3 * linear - 10 * s * h * h + 3.5 * attention,
              1e-6 * linear);
  EXPECT_NEAR(kept.last.of(Action::Kind::forward).flops + kept.last.of(Action::Kind::backward).flops, 6 * s * h * v,
              0.01 * 6 * s * h * v);
}

TEST(StageCosts, AttentionOfOtherSamplesIsNotCounted) {
  const Machine machine = open_machine("a100");
  const StageTable one = table_of({.micro_batch = 2048}, machine), four = table_of({.micro_batch = 8192}, machine);
  EXPECT_NEAR(four.layer(0).of(Action::Kind::forward).flops, 4 * one.layer(0).of(Action::Kind::forward).flops, 1e6);
}

TEST(StageCosts, TensorRanksShareWorkAndWeights) {
  const Machine machine = open_machine("a100");
  const StageTable one = table_of({.micro_batch = 2048}, machine),
                   eight = table_of({.tensor = 8, .micro_batch = 2048}, machine);
  EXPECT_NEAR(one.layer(0).parameters, 12 * h * h + 13 * h, 1);
  EXPECT_NEAR(eight.layer(0).parameters, one.layer(0).parameters, 1);
  EXPECT_NEAR(eight.layer(0).weights, one.layer(0).weights / 8, 0.001 * one.layer(0).weights);
  EXPECT_NEAR(eight.layer(0).of(Action::Kind::forward).flops, one.layer(0).of(Action::Kind::forward).flops / 8, 1e6);
  EXPECT_DOUBLE_EQ(one.layer(0).of(Action::Kind::forward).exposed_s, 0);
  EXPECT_GT(eight.layer(0).of(Action::Kind::forward).exposed_s, 0);
  EXPECT_DOUBLE_EQ(one.middle.forward_bytes, 2 * s * h);
  // AdamW: two moments of f32.
  EXPECT_DOUBLE_EQ(one.layer(0).optimizer, 8 * one.layer(0).parameters);
}

/// Korthikanti et al. 2022, equation 2 without scores: s b h (10 + 24 / t) bytes of a layer. Of the 10, two are masks of dropouts, which
/// these decoders do not have: 4 are inputs of norms, 4 inputs of products. Statistics of norms and of attention are the rest.
TEST(StageCosts, ActivationsAreThoseOfTheFormula) {
  const Machine machine = open_machine("a100");
  for (const double t : {1.0, 2.0, 8.0}) {
    const StageTable table = table_of({.tensor = static_cast<int64_t>(t)}, machine);
    const double kept = table.layer(0).slots[1] + table.layer(0).slots[2], formula = s * h * (8 + 24 / t);
    EXPECT_GE(kept, formula) << t;
    EXPECT_LT(kept, 1.005 * formula) << t;
  }
  // Of a layer that is recomputed its input, and the residual stream after attention.
  const StageTable full = table_of({.recompute = Recompute::full}, machine);
  EXPECT_LE(full.layer(0).slots[1] + full.layer(0).slots[2], 2 * s * h * 2 * 1.005);
}

TEST(StageCosts, ZeroCutsStatesOverDataRanks) {
  const Machine machine = open_machine("a100");
  const StageTable whole = table_of({.data = 4, .micro_batch = 2048}, machine),
                   first = table_of({.data = 4, .micro_batch = 2048, .zero = 1}, machine),
                   third = table_of({.data = 4, .micro_batch = 2048, .zero = 3}, machine);
  EXPECT_NEAR(first.layer(0).optimizer, whole.layer(0).optimizer / 4, 0.001 * whole.layer(0).optimizer);
  EXPECT_NEAR(first.layer(0).weights, whole.layer(0).weights, 0.001 * whole.layer(0).weights);
  EXPECT_NEAR(third.layer(0).weights, whole.layer(0).weights / 4, 0.001 * whole.layer(0).weights);
  // All-reduce of half-precision gradients over links of a node.
  EXPECT_NEAR(whole.layer(0).reduce_s, 2 * 0.75 * 2 * whole.layer(0).parameters / machine.levels[0].bandwidth,
              0.02 * whole.layer(0).reduce_s);
}

TEST(StageCosts, ScoresInMemoryCostTheirPasses) {
  Machine machine = open_machine("a100");
  const double fused = table_of({.micro_batch = 2048}, machine).layer(0).of(Action::Kind::forward).seconds;
  machine.device.score_passes = 6.5;
  const double passes = table_of({.micro_batch = 2048}, machine).layer(0).of(Action::Kind::forward).seconds;
  const double moved = 6.5 * 96 * s * s * 2 / machine.device.bandwidth.most();
  EXPECT_GT(passes - fused, moved);
  EXPECT_LT(passes - fused, 1.2 * moved);
}

}  // namespace
}  // namespace plait
