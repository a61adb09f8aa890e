// A model at hand against the same decoder by its sizes: programs of all layers against those of a few, extended.
#include <gtest/gtest.h>

#include "core/plan/generate/generation_price.h"
#include "core/plan/stages/stage_costs.h"
#include "tests/unit/plan/plan_world.h"

namespace plait {
namespace {

PlannedDecoder by_sizes(const std::string& family) {
  return {
      test::PlanWorld::get().options(),
      parse_decoder_shape("family=" + family +
                          ",layers=5,hidden=256,heads=8,kv_heads=4,feed_forward=640,vocabulary=1024,sequence=128")};
}

PlannedDecoder at_hand(const PlannedDecoder& of) {
  return planned_decoder(decoder_graph(of.shape, of.shape.layers, of.compile.ops), of.compile, of.shape.sequence);
}

TEST(ModelAtHand, ShapeIsReadOffTheGraph) {
  const PlannedDecoder sizes = by_sizes("llama"), found = at_hand(sizes);
  EXPECT_EQ(found.shape.layers, 5);
  EXPECT_EQ(found.shape.hidden, 256);
  EXPECT_EQ(found.shape.heads, 8);
  EXPECT_EQ(found.shape.kv_heads, 4);
  EXPECT_EQ(found.shape.vocabulary, 1024);
  EXPECT_EQ(found.shape.sequence, 128);
}

void expect_alike(const StageCosts& a, const StageCosts& b, const std::string& what) {
  const auto close = [&](double x, double y, const char* term, double share = 1e-3) {
    EXPECT_NEAR(x, y, share * std::max(x, y)) << what << " " << term;
  };
  for (const Action::Kind kind : {Action::Kind::forward, Action::Kind::backward}) {
    // Asynchronous collectives of a layer by itself wait for less, or more, than those of several layers in one section.
    close(a.of(kind).seconds - a.of(kind).exposed_s, b.of(kind).seconds - b.of(kind).exposed_s, "computing");
    close(a.of(kind).exposed_s, b.of(kind).exposed_s, "waiting", 0.3);
    close(a.of(kind).flops, b.of(kind).flops, "operations");
  }
  for (size_t pool = 1; pool < 4; ++pool) close(a.slots[pool], b.slots[pool], "slots");
  close(a.weights, b.weights, "weights");
  close(a.gradients, b.gradients, "gradients");
  close(a.optimizer, b.optimizer, "optimizer");
  close(a.finish_s, b.finish_s, "update");
  close(a.forward_bytes, b.forward_bytes, "message");
}

TEST(ModelAtHand, StagesCostWhatTheyDoBySizes) {
  const Machine machine = open_machine("a100");
  for (const char* family : {"llama", "gpt"})
    for (const int64_t tensor : {1, 2})
      for (const int64_t rank : {0, 8}) {
        const PlannedDecoder sizes = by_sizes(family), model = at_hand(sizes);
        TrainingOptions training;
        training.lora.rank = rank;
        const ProbeTerms terms{.tensor = tensor};
        const PriceTerms price{sizes.compile.ops, machine, DType::bf16, 128};
        const StageTable a = StageProbe(sizes, training, terms).price({1, 512}, price),
                         b = StageProbe(model, training, terms).price({1, 512}, price);
        ASSERT_EQ(b.layers.size(), 5u);
        const std::string what =
            std::string(family) + " tensor " + std::to_string(tensor) + " lora " + std::to_string(rank);
        expect_alike(a.stage(0, 5, true, true), b.stage(0, 5, true, true), what + ", whole");
        expect_alike(a.stage(1, 2, false, false), b.stage(1, 2, false, false), what + ", inner stage");
        expect_alike(a.stage(3, 2, false, true), b.stage(3, 2, false, true), what + ", last stage");
      }
}

TEST(ModelAtHand, TokensCostWhatTheyDoBySizes) {
  const Machine machine = open_machine("a100");
  for (const char* family : {"llama", "gpt"}) {
    const PlannedDecoder sizes = by_sizes(family), model = at_hand(sizes);
    const PriceTerms terms{sizes.compile.ops, machine, DType::bf16, 0};
    const GenerationCase how{.tensor = 2, .sequences = 4, .prompt = 64, .context = 96};
    const GenerationPrice a = price_generation(sizes, how, terms), b = price_generation(model, how, terms);
    EXPECT_NEAR(a.token_s, b.token_s, 1e-3 * a.token_s) << family;
    EXPECT_NEAR(a.prompt_s, b.prompt_s, 1e-3 * a.prompt_s) << family;
    EXPECT_NEAR(a.weight_bytes, b.weight_bytes, 1e-3 * a.weight_bytes) << family;
    EXPECT_NEAR(a.cache_bytes, b.cache_bytes, 1e-3 * a.cache_bytes) << family;
  }
}

}  // namespace
}  // namespace plait
