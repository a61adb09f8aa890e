// Requests of FasterTransformer against priced ones.
#include <gtest/gtest.h>

#include <cmath>

#include "core/plan/generate/generation_price.h"
#include "tests/unit/plan/oracles/tables.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

double request_ms(const TableRow& row, const Machine& machine) {
  const PlanWorld& world = PlanWorld::get();
  const DecoderShape shape = parse_decoder_shape(cat("family=gpt,layers=", row.text("layers"),
                                                     ",hidden=", row.text("hidden"), ",heads=", row.text("heads"),
                                                     ",vocabulary=", row.text("vocabulary"), ",sequence=2048"));
  const int64_t in = row.integer("in"), out = row.integer("out");
  const GenerationPrice price = price_generation({world.options(), shape},
                                                 {.tensor = row.integer("tensor"),
                                                  .pipeline = row.integer("pipeline"),
                                                  .sequences = row.integer("sequences"),
                                                  .prompt = in,
                                                  .context = in + out / 2},
                                                 {world.ops, machine, DType::f16, 0});
  // Release 4.0 runs its decoder for each token that it generates, after it has run all of the prompt (fastertransformer/gpt.h); since 5.0
  // the first token comes of the prompt's own run (ParallelGpt.cc).
  const int64_t steps = row.integer("version") < 5 ? out : out - 1;
  return 1e3 * (price.prompt_s + static_cast<double>(steps) * price.token_s);
}

/// Bandwidth and latency are fitted to two rows, 20B on one rank and 530B on 32. The ten rows that were chosen before any was predicted are
/// within 15 %, and of all 32 all but four: 20B on 8 ranks generates faster than predicted, by an all-reduce of its own since release 5;
/// prompts of 32 x 512 tokens of 6.7B, and the shortest request of 89B, take longer.
TEST(FasterTransformer, RequestsAreWithinFifteenPercent) {
  Machine machine = open_machine("a100");
  machine.device.bandwidth = 1.6e12;
  for (LinkLevel& level : machine.levels) level.latency_s = 10.8e-6;
  int close = 0, chosen = 0, predicted = 0;
  for (const TableRow& row : read_table("faster_transformer.csv")) {
    const double ms = request_ms(row, machine), off = std::abs(ms / row.number("ms") - 1);
    const std::string name = cat(row.text("name"), " tensor ", row.text("tensor"), " pipeline ", row.text("pipeline"),
                                 " sequences ", row.text("sequences"), " in ", row.text("in"));
    record_row(name, 1e-3 * row.number("ms"), 1e-3 * ms);
    if (row.text("kind") == "fitted") {
      EXPECT_LT(off, 0.03) << name << ": " << ms << " ms of " << row.text("ms");
      continue;
    }
    ++predicted;
    chosen += row.text("kind") == "chosen";
    close += off < 0.15;
    EXPECT_LT(off, row.text("kind") == "chosen" ? 0.15 : 0.25) << name << ": " << ms << " ms of " << row.text("ms");
  }
  EXPECT_EQ(chosen, 10);
  EXPECT_EQ(predicted, 32);
  EXPECT_GE(close, 28);
}

/// A token of one request costs reading the weights once, divided over the ranks, and more for what ranks tell each other.
TEST(FasterTransformer, TensorRanksHelpLessAndLess) {
  const Machine machine = open_machine("a100");
  const PlanWorld& world = PlanWorld::get();
  const DecoderShape shape = parse_decoder_shape(
      "family=llama,layers=32,hidden=4096,heads=32,kv_heads=8,feed_forward=14336,vocabulary=128256,"
      "sequence=8192");
  const auto price = [&](int64_t tensor, int64_t sequences) {
    return price_generation({world.options(), shape}, {.tensor = tensor, .sequences = sequences, .prompt = 512},
                            {world.ops, machine, DType::bf16, 0});
  };
  const GenerationPrice one = price(1, 1), two = price(2, 1), eight = price(8, 1), batch = price(1, 16);
  EXPECT_GT(one.token_s,
            2 * 8.03e9 * 0.9 / machine.device.bandwidth.most());  // the embedding table is not read whole
  EXPECT_LT(one.token_s, 1.2 * 2 * 8.03e9 / machine.device.bandwidth.most());
  EXPECT_DOUBLE_EQ(one.exposed_s, 0);
  EXPECT_GT(one.token_s / two.token_s, 1.5);
  EXPECT_LT(one.token_s / eight.token_s, 7);
  EXPECT_GT(batch.tokens_per_second(16), 8 * one.tokens_per_second(1));
  EXPECT_NEAR(batch.cache_bytes, 16 * 512 * 32 * 8 * 128 * 2 * 2.0, 1);
  EXPECT_THROW(price(3, 1), Error);
}

}  // namespace
}  // namespace plait::test
