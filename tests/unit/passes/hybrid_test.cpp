// Hybrid decoders: their states become slots of the store, and the raised program gives the logits of the graph as it is
// written, however the tokens are cut into steps.
#include <gtest/gtest.h>

#include "tests/unit/support/hybrid_maker.h"

namespace plait::test {
namespace {

using Kinds = std::map<std::string, int>;

TEST(Hybrids, ConvolutionRecurrenceAndAttention) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    SCOPED_TRACE(rule);
    Hybrid what;
    what.rule = rule;
    Decoder found = expect_raised_equals_plain(hybrid_graph(what));
    EXPECT_EQ(found.layers.size(), 1u);
    ASSERT_EQ(found.states.size(), 2u);
    EXPECT_EQ(found.states[0].op, "plait.CausalConv");
    EXPECT_EQ(found.states[0].sizes, (std::vector<int64_t>{3, 6}));
    EXPECT_EQ(found.states[1].op, "plait.LinearAttention");
    EXPECT_EQ(found.states[1].sizes, (std::vector<int64_t>{2, 4, 5}));
    EXPECT_EQ(found.state_bytes(), 4 * (3 * 6 + 2 * 4 * 5));
  }
}

/// Queries that share a state, and states that share a query and perhaps a key.
TEST(Hybrids, HeadsInAnyRatio) {
  struct Ratio {
    int64_t queries, keys, states;
  };
  for (const Ratio& ratio : {Ratio{4, 2, 2}, Ratio{2, 2, 4}, Ratio{2, 4, 4}, Ratio{1, 1, 3}}) {
    SCOPED_TRACE(testing::Message() << ratio.queries << " " << ratio.keys << " " << ratio.states);
    Hybrid what;
    what.queries = ratio.queries, what.keys = ratio.keys, what.states = ratio.states;
    what.decay_each = ratio.queries == 4;
    what.beta_for_all = ratio.queries == 1;
    expect_raised_equals_plain(hybrid_graph(what));
  }
}

TEST(Hybrids, StatesWithoutAttention) {
  Hybrid what;
  what.attention = false;
  Decoder found = expect_raised_equals_plain(hybrid_graph(what));
  EXPECT_TRUE(found.layers.empty());
  EXPECT_TRUE(found.pools.empty());
  EXPECT_EQ(found.states.size(), 2u);
}

/// A prompt's graph keeps nothing: the program gets pages and states.
TEST(Hybrids, WithoutACache) {
  for (const char* spelling : {"op", "concat"}) {
    SCOPED_TRACE(spelling);
    Hybrid what;
    what.cached = false;
    what.spelling = spelling;
    Decoder found = expect_raised_equals_plain(hybrid_graph(what));
    EXPECT_EQ(found.states.size(), 2u);
    EXPECT_EQ(found.layer_kinds(), (Kinds{{"attention", 1}, {"convolution", 1}, {"linear attention", 1}}));
  }
}

/// Without a cache no name contains their layer: there is no weight between them.
TEST(Hybrids, ConvolutionsInFrontOfARecurrenceAreOfItsLayer) {
  DecoderMaker m;
  ValueId x = m.embedded();
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<ValueId> parts;
    for (int part = 0; part < 3; ++part) {
      ValueId t = m.transpose(m.linear(x, DecoderMaker::hidden, 6), {0, 2, 1});
      ValueId y = m.ops("CausalConvWithState", {t, m.weight({6, 1, 4}), m.weight({6})}, 2)[0];
      parts.push_back(m.op("Sigmoid", {m.transpose(y, {0, 2, 1})}));
    }
    Attributes attributes = DecoderMaker::with("update_rule", std::string("linear"));
    attributes.set("q_num_heads", int64_t{1});
    attributes.set("kv_num_heads", int64_t{1});
    ValueId mixed = m.ops("LinearAttention", parts, 2, std::move(attributes))[0];
    x = m.op("Add", {x, m.linear(mixed, 6, DecoderMaker::hidden)});
  }
  Decoder found = expect_raised_equals_plain(m.finish(x, DecoderMaker::hidden));
  EXPECT_EQ(found.states.size(), 8u);
  EXPECT_EQ(found.layer_kinds(), (Kinds{{"linear attention", 2}}));
}

TEST(Hybrids, ConvolutionsWrittenWithConv) {
  for (const char* spelling : {"concat", "roll"}) {
    SCOPED_TRACE(spelling);
    Hybrid what;
    what.spelling = spelling;
    Decoder found = expect_raised_equals_plain(hybrid_graph(what));
    EXPECT_EQ(found.features()["causal convolution"], 1);
    EXPECT_EQ(found.states[0].sizes, (std::vector<int64_t>{3, 6}));
  }
}

std::string why_not(Graph graph) {
  Decoder found = recognise(std::move(graph), World::get().options());
  EXPECT_FALSE(found.recognised);
  return found.why_not;
}

/// A kernel that sees what comes after a token, a state that is not the last elements, one that is dropped.
TEST(Hybrids, WhatIsNoRecurrenceIsRefused) {
  Hybrid what;
  what.spelling = "concat";
  Graph ahead = hybrid_graph(what);
  for (Node& node : ahead.nodes)
    if (node.op == "Concat" && node.attributes.integer("axis", 0) == 2) std::swap(node.inputs[0], node.inputs[1]);
  EXPECT_NE(why_not(ahead).find("is a state"), std::string::npos) << why_not(ahead);
  Graph stale = hybrid_graph(what);
  for (Node& node : stale.nodes)
    if (node.op == "Slice")
      node.inputs[1] = stale.add_constant(Tensor::of_ints(std::vector<int64_t>{0})),
      node.inputs[2] = stale.add_constant(Tensor::of_ints(std::vector<int64_t>{3}));
  EXPECT_NE(why_not(stale).find("its state is not the last elements"), std::string::npos) << why_not(stale);
  Graph halved = hybrid_graph({});
  for (Node& node : halved.nodes)
    if (node.op == "LinearAttention") {
      ValueId other = halved.add_value("other", halved.value(node.inputs[3]).type);
      Node half;
      half.op = "Sigmoid";
      half.inputs = {node.inputs[3]};
      half.outputs = {other};
      node.inputs[3] = other;
      halved.nodes.insert(halved.nodes.begin(), half);
      break;
    }
  EXPECT_NE(why_not(halved).find("its past state is no input"), std::string::npos) << why_not(halved);
}

}  // namespace
}  // namespace plait::test
