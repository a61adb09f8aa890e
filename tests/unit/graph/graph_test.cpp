#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/graph.h"

namespace plait {
namespace {

const char* const sample = R"(graph "demo"
input %0 "ids" : i64[b, "past + new"]
const %1 "w" = file "layer.w" : f32[2, 3] = 1 -2.5 3 4 5 1e-3 ; transpose 1 0; cast bf16
const %2 = inline : i64[2] = 7 -1
const %3 = inline : bool[] = 1
node "a" : %4 : f32[b, 2*s + 1] , _ , %5 "named" : ?[...] = Op.Some(%0, _, %1) alpha=0.5 axis=-1 list=ints[1, 2])"
                           R"( names=strings["x", "y \"q\""] reals=floats[1.0, 2.5] value=tensor(i64[2] = 1 2)
node "if" stage 2 : %6 : ?[...] = If(%3, %4)
body "then_branch" {
  input %0 "in" : f32[n]
  node "" : %1 : f32[n] = Neg(%0)
  output %1
}
body "else_branch" {
  input %0 "in" : f32[n]
  output %0
}
output %6
output %5
)";

TEST(TextForm, RoundTrips) {
  Graph graph = parse_graph(sample);
  std::string once = text(graph), twice = text(parse_graph(once));
  EXPECT_EQ(once, twice);
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.nodes[1].stage, 2);
  EXPECT_EQ(graph.nodes[0].attributes.real("alpha", 0), 0.5);
  EXPECT_EQ(graph.value(graph.find("w")).constant->shape(), (Shape{3, 2}));
  EXPECT_EQ(graph.value(graph.find("w")).type.dtype, DType::bf16);
  verify(graph, "the test");
}

TEST(TextForm, ErrorsNameTheLine) {
  for (const char* bad : {"input %0 : f32[1]\nnonsense", "input %0 : f32[1]\noutput %1",
                          "input %0 : f32[1]\ninput %0 : f32[1]", "input %0 : f99[1]\nx",
                          "input %0 : f32[1]\nnode \"\" : %1 : f32[1] = Neg(%0", "input %0 : f32[1]\nbody \"x\" {"}) {
    try {
      parse_graph(bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("line "), std::string::npos) << error.message();
    }
  }
}

TEST(Graph, SortsAndFindsCycles) {
  Graph graph;
  ValueId x = graph.add_value("x", {DType::f32, Dims{}});
  graph.inputs = {x};
  ValueId middle = graph.add_node("Neg", {x}).outputs[0];
  ValueId last = graph.add_node("Exp", {middle}).outputs[0];
  graph.outputs = {last};
  std::swap(graph.nodes[0], graph.nodes[1]);
  EXPECT_THROW(verify(graph, "the swap"), Error);
  graph.sort();
  verify(graph, "the sort");
  EXPECT_EQ(graph.nodes[0].op, "Neg");
  graph.nodes[0].inputs[0] = last;
  EXPECT_THROW(graph.sort(), Error);
}

TEST(Graph, DeadNodesGo) {
  Graph graph = parse_graph(
      "input %0 : f32[2]\nnode \"\" : %1 : f32[2] = Neg(%0)\nnode \"\" : %2 : f32[2] = Exp(%0)\noutput %2");
  graph.remove_dead();
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].op, "Exp");
}

}  // namespace
}  // namespace plait
