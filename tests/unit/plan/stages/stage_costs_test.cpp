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
  std::vector<std::string> seeds = {};
};

StageTable table_of(const Case& one, const Machine& machine) {
  static const DecoderShape gpt =
      parse_decoder_shape("family=gpt,layers=96,hidden=12288,heads=96,vocabulary=51200,sequence=2048");
  const test::PlanWorld& world = test::PlanWorld::get();
  const StageProbe probe({world.options(), gpt}, {},
                         {.tensor = one.tensor,
                          .data = one.data > 1 ? 2 : 1,
                          .zero = one.zero,
                          .recompute = one.recompute,
                          .seeds = one.seeds});
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

/// A table that the first stage and the last read, with few tokens: their gradients add to one sum, a partial sum over data ranks.
TEST(StageCosts, TiedTablesAddToOneSum) {
  const Machine machine = open_machine("a100");
  const DecoderShape tied = parse_decoder_shape("family=gpt,layers=2,hidden=128,heads=32,vocabulary=512,sequence=64");
  const test::PlanWorld& world = test::PlanWorld::get();
  for (const char* seeds : {"tensor", "sequence"}) {
    const StageProbe probe({world.options(), tied}, {}, {.tensor = 16, .data = 2, .seeds = {"tensor", seeds}});
    const StageTable table = probe.price({2, 64}, {world.ops, machine, DType::f16, 64});
    EXPECT_NEAR(table.first.parameters, (512 + 64) * 128, 1) << seeds;
  }
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

/// Korthikanti et al. 2022, section 4.2.2: what is kept of a layer is divided by t where tokens are sharded between products, and sums
/// over tensor ranks are two halves with the same bytes. Without recomputation gathered inputs of products stay whole; with it each rank
/// keeps its part, and gathers again.
TEST(StageCosts, ShardedTokensDivideWhatIsKept) {
  const Machine machine = open_machine("a100");
  const auto kept = [&](double t, Recompute how, std::vector<std::string> seeds) {
    const StageTable table =
        table_of({.tensor = static_cast<int64_t>(t), .recompute = how, .seeds = std::move(seeds)}, machine);
    return table.layer(0).slots[1] + table.layer(0).slots[2];
  };
  for (const double t : {2.0, 8.0}) {
    EXPECT_NEAR(kept(t, Recompute::off, {"sequence"}), s * h * (4 + 28 / t), 0.005 * s * h * (4 + 28 / t)) << t;
    for (const Recompute how : {Recompute::selective, Recompute::full})
      EXPECT_NEAR(kept(t, how, {"sequence"}), kept(1, how, {}) / t, 0.005 * kept(1, how, {}) / t) << t;
  }
  const StageTable whole = table_of({.tensor = 8}, machine),
                   cut = table_of({.tensor = 8, .seeds = {"sequence"}}, machine);
  const auto waits = [](const StageTable& table, Action::Kind kind) { return table.layer(0).of(kind).exposed_s; };
  EXPECT_NEAR(waits(cut, Action::Kind::forward), waits(whole, Action::Kind::forward),
              0.02 * waits(whole, Action::Kind::forward));
  // Gradients that come from queries, keys and values are reduced one by one, for as many bytes as one all_reduce more.
  EXPECT_NEAR(waits(cut, Action::Kind::backward), 1.5 * waits(whole, Action::Kind::backward),
              0.02 * waits(whole, Action::Kind::backward));
  const auto computes = [](const StageTable& table) {
    const SectionCosts& forward = table.layer(0).of(Action::Kind::forward);
    return forward.seconds - forward.exposed_s;
  };
  EXPECT_LT(computes(cut), 0.97 * computes(whole)) << "norms and sums of 1 / t of the tokens";
  EXPECT_DOUBLE_EQ(cut.layer(0).of(Action::Kind::forward).flops, whole.layer(0).of(Action::Kind::forward).flops);
  EXPECT_NEAR(cut.middle.forward_bytes, whole.middle.forward_bytes / 8, 1);
}

const char* const mixture =
    "family=llama,layers=4,hidden=1024,heads=16,feed_forward=2816,vocabulary=4096,experts=8,experts_used=2,sequence="
    "512";

StageTable mixture_of(const std::string& sizes, const ProbeTerms& terms, int64_t data) {
  const test::PlanWorld& world = test::PlanWorld::get();
  const StageProbe probe({world.options(), parse_decoder_shape(sizes)}, {}, terms);
  return probe.price({data, 512}, {world.ops, open_machine("a100"), DType::bf16, 512});
}

/// Whole experts of d data ranks: 1 / d of their weights and of the work on all tokens, which is a rank's own again; tokens go to all
/// ranks, what is made of them comes back, and gradients are complete.
TEST(StageCosts, DataRanksShareExperts) {
  constexpr double d = 4, experts = 8 * 3 * 1024.0 * 2816;
  const StageTable all = mixture_of(mixture, {.data = 2}, 4),
                   shared = mixture_of(mixture, {.data = 4, .seeds = {"expert_data"}}, 4);
  const StageCosts &a = all.layer(0), &b = shared.layer(0);
  EXPECT_NEAR(a.weights - b.weights, 4 * experts * (1 - 1 / d), 1e-6 * a.weights);
  EXPECT_NEAR(a.optimizer - b.optimizer, 8 * experts * (1 - 1 / d), 1e-6 * a.optimizer);
  EXPECT_DOUBLE_EQ(a.parameters, b.parameters);
  for (const Action::Kind kind : {Action::Kind::forward, Action::Kind::backward})
    EXPECT_NEAR(a.of(kind).flops, b.of(kind).flops, 1e-9 * a.of(kind).flops);
  // Forward: x, and what experts make of it; numbers and shares are little.
  const double sent = 2 * (d - 1) / d * d * 512 * 1024 * 2, link = open_machine("a100").levels[0].bandwidth;
  EXPECT_GT(b.of(Action::Kind::forward).exposed_s, sent / link);
  EXPECT_LT(b.of(Action::Kind::forward).exposed_s, 1.1 * sent / link + 1e-4);
  EXPECT_LT(b.reduce_s, 0.5 * a.reduce_s);
}

/// Layers of two kinds in turn.
TEST(StageCosts, KindsOfLayersRepeat) {
  const StageTable both = mixture_of(mixture + std::string(",experts_every=2"), {}, 1),
                   one = mixture_of(mixture, {}, 1);
  ASSERT_EQ(both.layers.size(), 2u);
  EXPECT_NEAR(both.layer(2).parameters, one.layer(0).parameters, 1);
  EXPECT_NEAR(both.layer(0).parameters - both.layer(3).parameters, 7 * 3 * 1024.0 * 2816 + 8 * 1024, 1);
  const DecoderShape shape = parse_decoder_shape(mixture + std::string(",experts_every=2"));
  EXPECT_NEAR(both.stage(0, 4, true, true).parameters, static_cast<double>(shape.parameters()), 1);
  const StageCosts first = both.stage(0, 1, true, false), second = both.stage(1, 1, false, false);
  EXPECT_GT(first.of(Action::Kind::forward).flops, 1.5 * second.of(Action::Kind::forward).flops);
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
