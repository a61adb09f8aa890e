// What raise recognises, and why it refuses.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/passes/compile.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

Decoder decoder_of(const std::string& name) { return recognise(fixture_graph(name), World::get().options()); }

TEST(Raise, FindsWindowsHeadsAndScale) {
  Decoder gemma = decoder_of("gemma3-optimum18");
  ASSERT_TRUE(gemma.recognised) << gemma.why_not;
  for (const AttentionLayer& layer : gemma.layers) EXPECT_EQ(layer.query_heads % layer.kv_heads, 0);
  int sliding = 0, full = 0;
  for (const AttentionLayer& layer : gemma.layers) (layer.window == 8 ? sliding : full) += 1;
  EXPECT_GT(sliding, 0);
  EXPECT_GT(full, 0);
  for (const AttentionLayer& layer : gemma.layers)
    EXPECT_TRUE(layer.window == 8 || layer.window == 0) << layer.window;
}

TEST(Raise, EveryFormOfOneModelIsTheSameModel) {
  Decoder standard = decoder_of("gemma3-standard23"), plain = decoder_of("gemma3-plain18"),
          dynamo = decoder_of("gemma3-dynamo23"), optimum = decoder_of("gemma3-optimum18");
  for (const Decoder* other : {&plain, &dynamo, &optimum}) {
    ASSERT_EQ(other->layers.size(), standard.layers.size());
    for (size_t i = 0; i < standard.layers.size(); ++i) {
      EXPECT_EQ(other->layers[i].window, standard.layers[i].window);
      EXPECT_EQ(other->layers[i].query_heads, standard.layers[i].query_heads);
      EXPECT_EQ(other->layers[i].kv_heads, standard.layers[i].kv_heads);
      EXPECT_NEAR(other->layers[i].scale, standard.layers[i].scale, 1e-6);
    }
    EXPECT_EQ(other->vocabulary, standard.vocabulary);
    EXPECT_EQ(other->hidden, standard.hidden);
  }
  EXPECT_EQ(plain.features().at("RMSNorm"), optimum.features().at("RMSNorm"));
}

TEST(Raise, LearnedPositionsLimitTheContext) { EXPECT_EQ(decoder_of("gpt2-optimum18").context, 64); }

const std::string list_of_48 =
    " 1 -2 0.5 3 1 0 1 2  0.3 -1 2 1 0 1 -1 0.5  1 1 2 0.2 -0.4 0.1 1 2  0 1 0 -1 0.6 1 1 1"
    " -1 -1 0.5 0.25 1 2 3 1  0.7 0.1 -0.2 1 0 1 0 -1";

/// A decoder of one attention layer whose mask is `mask`, a bool [s, t] made of positions q [s, 1] and k [t].
Graph decoder_with_mask(const std::string& mask) {
  return parse_graph(R"(
input %0 "input_ids" : i64[b, s]
input %1 "past_key_values.0.key" : f32[b, 2, p, 4]
input %2 "past_key_values.0.value" : f32[b, 2, p, 4]
const %10 "table" = inline : f32[6, 8] =)" + list_of_48 + R"(
const %11 "shape" = inline : i64[4] = 0 0 2 4
const %12 "flat" = inline : i64[3] = 0 0 8
const %13 "zero" = inline : i64[] = 0
const %14 "one" = inline : i64[] = 1
const %15 "two" = inline : i64[] = 2
const %16 "axis1" = inline : i64[1] = 1
const %17 "w" = inline : i64[] = 3
const %18 "head" = inline : f32[8, 6] =)" + list_of_48 + R"(
node "embed" : %20 : ?[...] = Gather(%10, %0) axis=0
node "heads" : %21 : ?[...] = Reshape(%20, %11)
node "turn" : %22 : ?[...] = Transpose(%21) perm=ints[0, 2, 1, 3]
node "past" : %23 : ?[...] = Shape(%1)
node "p" : %24 : ?[...] = Gather(%23, %15) axis=0
node "new" : %25 : ?[...] = Shape(%0)
node "s" : %26 : ?[...] = Gather(%25, %14) axis=0
node "t" : %27 : ?[...] = Add(%24, %26)
node "k" : %28 : ?[...] = Range(%13, %27, %14)
node "q" : %29 : ?[...] = Range(%24, %27, %14)
node "q2" : %30 : ?[...] = Unsqueeze(%29, %16)
)" + mask + R"(
node "attention" : %50 : ?[...] , %51 "present.0.key" : ?[...] , %52 "present.0.value" : ?[...] = Attention(%22, %22, %22, %40, %1, %2)
node "back" : %53 : ?[...] = Transpose(%50) perm=ints[0, 2, 1, 3]
node "flatten" : %54 : ?[...] = Reshape(%53, %12)
node "logits" : %55 "logits" : ?[...] = MatMul(%54, %18)
output %55
output %51
output %52
)");
}

TEST(Raise, MasksAreReadByWhatTheyLetThrough) {
  Decoder causal =
      recognise(decoder_with_mask("node \"m\" : %40 : ?[...] = LessOrEqual(%28, %30)"), World::get().options());
  ASSERT_TRUE(causal.recognised) << causal.why_not;
  EXPECT_EQ(causal.layers[0].window, 0);
  Decoder window =
      recognise(decoder_with_mask(
                    "node \"d\" : %38 : ?[...] = Sub(%30, %17)\nnode \"g\" : %39 : ?[...] = Greater(%28, %38)\n"
                    "node \"l\" : %37 : ?[...] = LessOrEqual(%28, %30)\nnode \"m\" : %40 : ?[...] = And(%39, %37)"),
                World::get().options());
  ASSERT_TRUE(window.recognised) << window.why_not;
  EXPECT_EQ(window.layers[0].window, 3);
}

TEST(Raise, FindingsNameTheNodesOfTheFile) {
  Decoder decoder =
      recognise(decoder_with_mask("node \"m\" : %40 : ?[...] = LessOrEqual(%28, %30)"), World::get().options());
  std::map<std::string, std::string> found;
  for (const Finding& one : decoder.found) EXPECT_TRUE(found.emplace(one.what, one.node).second);
  const std::map<std::string, std::string> expected{
      {"Embedding", "embed"}, {"attention", "attention"}, {"Linear f32", "logits"}};
  EXPECT_EQ(found, expected);
  for (const Finding& one : decoder.plain) EXPECT_EQ(one.what, "Reshape") << one.node;
  EXPECT_TRUE(decoder.obstacles.empty());
}

TEST(Raise, OtherMasksAreRefusedAndTheGraphStillRuns) {
  // Every second key is hidden: no window describes that.
  std::string odd =
      "node \"r\" : %38 : ?[...] = Mod(%28, %15)\nnode \"e\" : %39 : ?[...] = Equal(%38, %13)\n"
      "node \"l\" : %37 : ?[...] = LessOrEqual(%28, %30)\nnode \"m\" : %40 : ?[...] = And(%39, %37)";
  Graph graph = decoder_with_mask(odd);
  Decoder refused = recognise(graph, World::get().options());
  EXPECT_FALSE(refused.recognised);
  EXPECT_NE(refused.why_not.find("mask"), std::string::npos) << refused.why_not;
  ASSERT_EQ(refused.obstacles.size(), 1u);
  EXPECT_NE(refused.obstacles[0].find("attention"), std::string::npos) << refused.obstacles[0];
  auto engine = make_engine(graph, World::get().options(), small_engine());
  EXPECT_FALSE(engine->decoder().recognised);
  auto sequence = engine->open({});
  std::vector<int32_t> ids{1, 2, 3};
  Feed feed{sequence.get(), ids, 1, {}, {}};
  engine->step({&feed, 1});
  EXPECT_EQ(feed.logits.size(), 6u);
}

TEST(Raise, TokensMustNotMix) {
  // A running sum over the sequence after the attention: no mix of requests could share a row.
  std::string text = plait::text(decoder_with_mask("node \"m\" : %40 : ?[...] = LessOrEqual(%28, %30)"), 1000);
  size_t at = text.find("MatMul(");
  ASSERT_NE(at, std::string::npos);
  Graph graph = parse_graph(text);
  for (Node& node : graph.nodes)
    if (node.op == "Reshape" && node.name == "flatten") {
      ValueId axis = graph.add_constant(Tensor::of_ints(std::vector<int64_t>{1}).reshaped({}));
      Node sum;
      sum.op = "CumSum";
      sum.name = "mixer";
      sum.inputs = {node.outputs[0], axis};
      sum.outputs = {graph.add_value({})};
      graph.replace_uses(node.outputs[0], sum.outputs[0]);
      sum.inputs[0] = node.outputs[0];
      graph.nodes.push_back(sum);
      break;
    }
  graph.sort();
  Decoder refused = recognise(graph, World::get().options());
  EXPECT_FALSE(refused.recognised);
  EXPECT_NE(refused.why_not.find("mixer"), std::string::npos) << refused.why_not;
}

}  // namespace
}  // namespace plait::test
