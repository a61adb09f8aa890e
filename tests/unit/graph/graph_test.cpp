#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "tests/unit/graph/sample_text.h"

namespace plait {
namespace {

using test::sample_text;

TEST(TextForm, RoundTrips) {
  Graph graph = parse_graph(sample_text);
  std::string once = text(graph), twice = text(parse_graph(once));
  EXPECT_EQ(once, twice);
  EXPECT_EQ(graph.nodes.size(), 2u);
  EXPECT_EQ(graph.value(7).constant->shape(), (Shape{2, 1, 2}));
  EXPECT_NE(once.find("stack (file \"a\""), std::string::npos) << once;
  EXPECT_TRUE(graph.value(graph.find("eps")).constant->literal);
  EXPECT_EQ(graph.nodes[1].stage, 2);
  EXPECT_EQ(graph.nodes[0].attributes.real("alpha", 0), 0.5);
  EXPECT_EQ(graph.value(graph.find("w")).constant->shape(), (Shape{3, 2}));
  EXPECT_EQ(graph.value(graph.find("w")).type.dtype, DType::bf16);
  verify(graph, "the test");
}

TEST(TextForm, ErrorsNameTheLine) {
  for (const char* bad : {"input %0 : f32[1]\nnonsense", "input %0 : f32[1]\noutput %1",
                          "input %0 : f32[1]\ninput %0 : f32[1]", "input %0 : f99[1]\nx",
                          "const %0 = stack (inline : f32[1] = 1), (inline : f32[2] = 1 2)",
                          "input %0 : f32[1]\nnode \"\" : %1 : f32[1] = Neg(%0", "input %0 : f32[1]\nbody \"x\" {",
                          "input %0 : f32[1, 1, 1, 1, 1, 1, 1, 1, 1]",
                          "const %0 = inline : f16[77777777777] = 0.5"}) {
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
