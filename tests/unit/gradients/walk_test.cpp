// How gradients pass through a graph: sums of several uses, errors that name the node, what is off the way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/gradient.h"
#include "core/passes/base/evaluate.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using testing::HasSubstr;

Graph inferred(const std::string& text) {
  Graph graph = parse_graph(text);
  Knowledge knowledge;
  infer_graph(World::get().ops, graph, knowledge);
  return graph;
}

/// Of the graph's first output, whose gradient is ones.
std::vector<ValueId> gradients_of(Graph& graph, const std::vector<ValueId>& wanted) {
  const Type& type = graph.value(graph.outputs[0]).type;
  Shape shape;
  for (const Dim& dim : *type.dims) shape.push_back(dim.constant());
  Tensor ones(type.dtype, shape);
  for (int64_t i = 0; i < ones.elements(); ++i) set_element(ones, i, 1);
  const GradientSeed seed{graph.outputs[0], graph.add_constant(ones)};
  return add_gradients(World::get().ops, graph, {&seed, 1}, wanted);
}

TEST(Walk, AddsUpWhatSeveralUsesGive) {
  Graph graph = inferred(R"(
input %0 "x" : f64[2]
node "square" : %1 : ?[...] = Mul(%0, %0)
node "more" : %2 : ?[...] = Add(%1, %0)
output %2
)");
  const std::vector<ValueId> out = gradients_of(graph, {0});
  const CompileOptions options = World::get().options();
  const PassContext context{options};
  Evaluator evaluator(context, graph);
  evaluator.bind(0, Tensor::of<double>(DType::f64, {2}, std::vector<double>{3, -5}));
  const Tensor dx = evaluator.value(out[0]);
  EXPECT_EQ(element(dx, 0), 7);
  EXPECT_EQ(element(dx, 1), -9);
}

/// Unique has no gradient.
const char* const with_unique = R"(
input %0 "x" : f32[4]
input %1 "y" : f32[4]
node "distinct" : %2 : ?[...] = Unique(%0)
node "sum" : %3 : ?[...] = ReduceSum(%2) keepdims=1
node "y_and_sum" : %4 : ?[...] = Mul(%1, %3)
output %4
)";

TEST(Walk, NamesTheNodeThatHasNone) {
  Graph graph = inferred(with_unique);
  try {
    gradients_of(graph, {0});
    FAIL() << "Unique has none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_THAT(error.message(), HasSubstr("distinct"));
    EXPECT_THAT(error.message(), HasSubstr("Unique"));
  }
}

TEST(Walk, AsksOnlyNodesOnTheWay) {
  Graph graph = inferred(with_unique);
  EXPECT_NE(gradients_of(graph, {1})[0], no_value);
}

TEST(Walk, FindsNothingForWhatTheScalarDoesNotDependOn) {
  Graph graph = inferred(R"(
input %0 "x" : f32[4]
input %1 "y" : f32[4]
node "rounded" : %2 : ?[...] = Round(%1)
node "sum" : %3 : ?[...] = Add(%0, %2)
output %3
)");
  const std::vector<ValueId> out = gradients_of(graph, {0, 1});
  EXPECT_NE(out[0], no_value);
  EXPECT_EQ(out[1], no_value) << "Round is constant but at single points";
}

TEST(Walk, GivesEachValueAGradientOfItsOwnType) {
  Graph graph = inferred(R"(
input %0 "x" : f32[2, 3, 8]
input %1 "w" : bf16[5, 8]
input %2 "bias" : bf16[5]
input %3 "table" : bf16[7, 8]
const %4 "ids" = inline : i64[2, 3] = 0 1 2 3 4 5
node "embed" : %5 : ?[...] = plait.Embedding(%3, %4)
node "sum" : %6 : ?[...] = Add(%0, %5)
node "linear" : %7 : ?[...] = plait.Linear(%6, %1, %2)
output %7
)");
  const std::vector<ValueId> wanted{0, 1, 2, 3}, out = gradients_of(graph, wanted);
  for (size_t k = 0; k < wanted.size(); ++k)
    EXPECT_EQ(text(graph.value(out[k]).type, graph.symbols), text(graph.value(wanted[k]).type, graph.symbols));
}

}  // namespace
}  // namespace plait::test
