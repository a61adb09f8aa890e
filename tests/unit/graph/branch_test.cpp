#include "core/graph/branch.h"

#include <gtest/gtest.h>

#include "core/graph/roles.h"

namespace plait {
namespace {

/// Results of an If that are a node's, the same again, what the branch takes, and a constant.
constexpr const char* merged = R"(
input %0 "use" : bool[1]
input %1 "x" : f32[n]
input %2 "y" : f32[n]
node "if" : %3 : ?[...], %4 : ?[...], %5 : ?[...], %6 : ?[...] = If(%0, %1, %2)
body "then_branch" {
  input %0 : f32[n]
  input %1 : f32[n]
  const %3 = inline : f32[1] = 7
  node "then" : %2 : ?[...] = Neg(%0)
  output %2
  output %2
  output %0
  output %3
}
body "else_branch" {
  input %0 : f32[n]
  input %1 : f32[n]
  node "else" : %2 : ?[...] = Abs(%1)
  output %2
  output %1
  output %1
  output %2
}
node "after" : %7 : ?[...] = Add(%3, %4)
output %7
output %3
output %5
output %6
)";

std::string ops(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes) out += node.op + " ";
  return out;
}

std::string inputs(const Graph& graph) {
  std::string out;
  for (ValueId id : graph.inputs) out += graph.value(id).name + " ";
  return out;
}

TEST(TakeBranch, LeavesItsNodes) {
  for (bool taken : {true, false}) {
    Graph graph = parse_graph(merged);
    const std::vector<ValueId> outputs = graph.outputs;
    take_branch(graph, graph.find("use"), taken);
    verify(graph, "the test");
    EXPECT_EQ(graph.outputs, outputs);
    EXPECT_EQ(ops(graph), taken ? "Neg Identity Identity Identity Add " : "Abs Identity Identity Identity Add ");
    EXPECT_EQ(inputs(graph), "x y ");
    EXPECT_EQ(graph.nodes[0].inputs[0], graph.find(taken ? "x" : "y"));
    EXPECT_EQ(graph.nodes[0].outputs[0], graph.outputs[1]);
  }
}

TEST(TakeBranch, LeavesOtherConditions) {
  Graph graph = parse_graph(merged);
  take_branch(graph, graph.find("x"), true);
  EXPECT_EQ(ops(graph), "If Add ");
}

TEST(KeepOutputs, DropsInputsThatNothingReads) {
  Graph graph = parse_graph(merged);
  take_branch(graph, graph.find("use"), true);
  keep_outputs(graph, {graph.outputs[1]});
  verify(graph, "the test");
  EXPECT_EQ(ops(graph), "Neg ");
  EXPECT_EQ(inputs(graph), "x ");
}

TEST(Roles, OfWhatAnEncoderMakes) {
  const auto value = [](const char* name, DType dtype, size_t rank) {
    return Value{name, {dtype, Dims(rank, Dim(1))}, nullptr};
  };
  EXPECT_TRUE(is_encoded(value("encoder_hidden_states", DType::f16, 3)));
  EXPECT_TRUE(is_encoded(value("past_key_values.0.encoder.key", DType::f32, 4)));
  EXPECT_TRUE(is_encoded(value("past_value_cross_3", DType::f32, 4)));
  EXPECT_FALSE(is_encoded(value("past_key_values.0.decoder.key", DType::f32, 4)));
  EXPECT_FALSE(is_encoded(value("encoder_attention_mask", DType::i64, 2)));
  EXPECT_TRUE(is_encoded_mask(value("encoder_attention_mask", DType::i64, 2)));
  EXPECT_FALSE(is_encoded_mask(value("attention_mask", DType::i64, 2)));
}

}  // namespace
}  // namespace plait
