// Pass bucket: which collectives go together, and that what waits for what stays possible.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/text.h"
#include "core/passes/lower/lower.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

constexpr const char* sum_attributes = R"(axes="data" parts=2)";

Graph bucketed(const std::string& text, int64_t cap) {
  Graph graph = parse_graph(text);
  const CompileOptions options = World::get().options();
  TrainingOptions training;
  training.bucket_bytes = cap;
  PassContext context{options, {}, {}};
  context.training = &training;
  bucket(graph, context);
  verify(graph, "the test");
  return graph;
}

int64_t count(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.op == op; });
}

/// y0, y1, ... = AllReduce(x0), ... of 4 KiB each.
std::string sums(int n, const std::string& more = sum_attributes) {
  std::string inputs, nodes, outputs;
  for (int i = 0; i < n; ++i) {
    inputs += cat("input %", i, " : f32[32, 32]\n");
    nodes += cat("node \"", i, "\" : %", n + i, " : f32[32, 32] = plait.AllReduce(%", i, ") ", more, "\n");
    outputs += cat("output %", n + i, "\n");
  }
  return inputs + nodes + outputs;
}

TEST(Bucket, GoesUpToItsBytes) {
  EXPECT_EQ(count(bucketed(sums(6), 0), "plait.AllReduce"), 6);
  EXPECT_EQ(count(bucketed(sums(6), 4095), "plait.AllReduce"), 6) << "each is larger";
  EXPECT_EQ(count(bucketed(sums(6), 8192), "plait.AllReduce"), 3);
  EXPECT_EQ(count(bucketed(sums(6), 5 * 4096), "plait.AllReduce"), 2);
  EXPECT_EQ(count(bucketed(sums(6), 1 << 20), "plait.AllReduce"), 1);
  const Graph graph = bucketed(sums(6), 1 << 20);
  for (ValueId id : graph.outputs) EXPECT_EQ(text(graph.value(id).type, graph.symbols), "f32[32, 32]");
}

TEST(Bucket, KeepsKindsApart) {
  std::string text = sums(2);
  text += R"(input %10 : f32[32, 32]
node "max" : %11 : f32[32, 32] = plait.AllReduce(%10) axes="data" parts=2 reduction="max"
node "other" : %12 : f32[32, 32] = plait.AllReduce(%10) axes="tensor" parts=2
node "gather" : %13 : f32[64, 32] = plait.AllGather(%10) axes="data" parts=2 dim=0
node "columns" : %14 : f32[32, 64] = plait.AllGather(%10) axes="data" parts=2 dim=1
output %11
output %12
output %13
output %14
)";
  const Graph graph = bucketed(text, 1 << 20);
  EXPECT_EQ(count(graph, "plait.AllReduce"), 3);
  EXPECT_EQ(count(graph, "plait.AllGather"), 2) << "columns of parts are no blocks of the memory";
}

TEST(Bucket, WhatNeedsAnotherGoesLater) {
  // The sums %4 and %6 are in sequence.
  const Graph chain = bucketed(cat(R"(input %0 : f32[8]
node "a" : %4 : f32[8] = plait.AllReduce(%0) )",
                                  sum_attributes, R"(
node "neg" : %5 : f32[8] = Neg(%4)
node "b" : %6 : f32[8] = plait.AllReduce(%5) )",
                                  sum_attributes, "\noutput %6\n"),
                              1 << 20);
  EXPECT_EQ(count(chain, "plait.AllReduce"), 2);
  // Sums a and d, and maxima b and c: each pair could go together, both cannot, for c needs a, and d needs b.
  const Graph crossed = bucketed(cat(R"(input %0 : f32[8]
node "a" : %1 : f32[8] = plait.AllReduce(%0) )",
                                    sum_attributes, R"(
node "b" : %2 : f32[8] = plait.AllReduce(%0) reduction="max" )",
                                    sum_attributes, R"(
node "c" : %3 : f32[8] = plait.AllReduce(%1) reduction="max" )",
                                    sum_attributes, R"(
node "d" : %4 : f32[8] = plait.AllReduce(%2) )",
                                    sum_attributes, "\noutput %3\noutput %4\n"),
                                1 << 20);
  EXPECT_EQ(count(crossed, "plait.AllReduce"), 3);
}

}  // namespace
}  // namespace plait::test
