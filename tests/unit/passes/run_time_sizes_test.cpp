// Sizes that a graph leaves open until it runs: branches of which only one fits, and what is squeezed because it is
// 1.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/passes/compile.h"
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {
namespace {

using Maker = DecoderMaker;

/// Runs a graph as written, all its outputs f32.
struct Runner {
  explicit Runner(Graph graph) : plain(compile_plain(std::move(graph), World::get().options())), pool(1) {
    store.load(*plain.program, {}, &pool);
    executor = std::make_unique<Executor>(plain.program, store, pool);
  }
  Shape operator()(const std::vector<Tensor>& inputs) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : inputs) views.push_back(tensor.view());
    executor->run(views);
    return executor->output(0).shape;
  }

  PlainModel plain;
  ThreadPool pool;
  Store store;
  std::unique_ptr<Executor> executor;
};

std::string failure(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

Tensor truth(bool value) {
  std::vector<uint8_t> byte{value};
  return Tensor::of<uint8_t>(DType::boolean, Shape{}, byte);
}

std::shared_ptr<Graph> body(const std::function<ValueId(Maker&, ValueId)>& make) {
  Maker m;
  m.graph.inputs.clear();
  ValueId x = m.input("x", DType::f32, {2, 6});
  m.graph.outputs = {make(m, x)};
  return std::make_shared<Graph>(std::move(m.graph));
}

/// If over a bool: the first branch gives [3, 4], the other cannot be.
Graph contradicting(bool both) {
  Graph graph;
  ValueId condition = graph.add_value("condition", {DType::boolean, Dims{}});
  ValueId x = graph.add_value("x", {DType::f32, Dims{2, 6}});
  graph.inputs = {condition, x};
  auto fits = [](Maker& m, ValueId in) { return m.reshape(in, {3, 4}); };
  auto does_not = [](Maker& m, ValueId in) { return m.op("Add", {m.reshape(in, {3, 4}), in}); };
  Node& node = graph.add_node("If", {condition, x}, 1);
  node.name = "choice";
  if (both) node.bodies = {{"then_branch", body(does_not)}, {"else_branch", body(does_not)}};
  else node.bodies = {{"then_branch", body(fits)}, {"else_branch", body(does_not)}};
  graph.outputs = {node.outputs[0]};
  return graph;
}

TEST(RunTimeSizes, ABranchThatCannotRunFailsWhenItIsTaken) {
  Runner run(contradicting(false));
  Tensor x(DType::f32, {2, 6});
  EXPECT_EQ(run({truth(true), x}), (Shape{3, 4}));
  EXPECT_NE(failure([&] {
              run({truth(false), x});
            }).find("Add"),
            std::string::npos)
      << failure([&] {
           run({truth(false), x});
         });
  EXPECT_EQ(run({truth(true), x}), (Shape{3, 4}));
  EXPECT_NE(failure([] { Runner both(contradicting(true)); }), "");
}

TEST(RunTimeSizes, BranchesOfUnequalRank) {
  Graph graph = contradicting(false);
  graph.nodes[0].bodies[1].second = body([](Maker& m, ValueId in) { return m.reshape(in, {12}); });
  graph.value(graph.outputs[0]).type = {DType::f32, Dims{3, 4}};  // as the file declares it
  graph.outputs = {graph.add_node("Neg", {graph.outputs[0]}).outputs[0]};
  Runner run(std::move(graph));
  Tensor x(DType::f32, {2, 6});
  EXPECT_EQ(run({truth(true), x}), (Shape{3, 4}));
  EXPECT_EQ(run({truth(false), x}), (Shape{12}));
}

TEST(RunTimeSizes, ADecoderWithABranchThatCannotRunStillGenerates) {
  Maker m;
  ValueId x = m.embedded(), query = m.heads(x, 2, 4), key = m.heads(x, 2, 4), value = m.heads(x, 2, 4);
  ValueId scores = m.op("Mul", {m.op("MatMul", {query, m.transpose(key, {0, 1, 3, 2})}), m.real(0.5)});
  ValueId chances = m.chances(scores, m.visible(m.size(key, 2)));
  ValueId context = m.reshape(m.transpose(m.op("MatMul", {chances, value}), {0, 2, 1, 3}), {0, 0, 8});
  auto branch = [](bool fits) {
    Maker inner;
    inner.graph.inputs.clear();
    ValueId in = inner.input("x", DType::f32, {inner.dim("b"), inner.dim("s"), 8});
    inner.graph.outputs = {inner.op("Tanh", {fits ? in : inner.op("MatMul", {in, inner.weight({5, 8})})})};
    return std::make_shared<Graph>(std::move(inner.graph));
  };
  ValueId some = m.op("Greater", {m.op("ReduceMax", {context}, Maker::with("keepdims", int64_t{0})), m.real(-1e9)});
  Node& node = m.graph.add_node("If", {some, context}, 1);
  node.name = "choice";
  node.bodies = {{"then_branch", branch(true)}, {"else_branch", branch(false)}};
  Graph graph = m.finish(node.outputs[0], 8);
  auto engine = make_engine(graph, World::get().options(), small_engine());
  EXPECT_FALSE(engine->decoder().recognised);
  EXPECT_EQ(logits_of(*engine, {1, 2, 3}, 3).size(), 3u * Maker::vocabulary);
}

TEST(RunTimeSizes, WhatIsSqueezedWithoutAxesIsWhatTurnsOut1) {
  Graph graph;
  ValueId x = graph.add_value("x", {DType::f32, Dims{graph.symbol("b"), 1, graph.symbol("s")}});
  graph.inputs = {x};
  graph.outputs = {graph.add_node("Squeeze", {x}).outputs[0]};
  Runner run(std::move(graph));
  EXPECT_EQ(run({Tensor(DType::f32, {2, 1, 3})}), (Shape{2, 3}));
  EXPECT_EQ(run({Tensor(DType::f32, {1, 1, 3})}), (Shape{3}));
  EXPECT_EQ(run({Tensor(DType::f32, {2, 1, 1})}), (Shape{2}));
}

/// What only the elements tell is told by those of a constant.
TEST(RunTimeSizes, SizesOfConstantsThatDependOnDataAreFolded) {
  for (const auto& [op, outputs, shape] : {std::tuple{"Unique", 4, Shape{2}}, {"NonZero", 1, Shape{1, 3}}}) {
    Graph graph;
    const std::vector<float> numbers{3, 1, 3};
    ValueId x = graph.add_constant(Tensor::of<float>(DType::f32, {3}, numbers));
    graph.outputs = {graph.add_node("Neg", {graph.add_node(op, {x}, outputs).outputs[0]}).outputs[0]};
    Runner run(std::move(graph));
    EXPECT_EQ(run({}), shape) << op;
    EXPECT_TRUE(run.plain.program->instructions.empty()) << op;
  }
}

/// Either of two sizes may be the one that broadcasts.
TEST(RunTimeSizes, SizesOfTwoNamesBroadcastBothWays) {
  for (const char* op : {"Add", "Where", "Max"}) {
    Graph graph;
    ValueId x = graph.add_value("x", {DType::f32, Dims{graph.symbol("b"), 3}});
    ValueId z = graph.add_value("z", {DType::f32, Dims{graph.symbol("d"), 1}});
    ValueId condition = graph.add_value("c", {DType::boolean, Dims{}});
    const bool chooses = op == std::string("Where");
    graph.inputs = chooses ? std::vector<ValueId>{x, z, condition} : std::vector<ValueId>{x, z};
    ValueId made = graph.add_node(op, chooses ? std::vector<ValueId>{condition, x, z} : std::vector<ValueId>{x, z}).outputs[0];
    graph.outputs = {graph.add_node("Mul", {graph.add_node("Neg", {made}).outputs[0], x}).outputs[0]};
    Runner run(std::move(graph));
    for (auto [b, d, both] : {std::tuple{5, 1, 5}, {1, 5, 5}, {4, 4, 4}}) {
      std::vector<Tensor> operands{Tensor(DType::f32, {b, 3}), Tensor(DType::f32, {d, 1})};
      if (chooses) operands.push_back(truth(true));
      EXPECT_EQ(run(operands), (Shape{both, 3})) << op;
    }
    std::vector<Tensor> apart{Tensor(DType::f32, {2, 3}), Tensor(DType::f32, {3, 1})};
    if (chooses) apart.push_back(truth(true));
    EXPECT_NE(failure([&] { run(apart); }).find(op), std::string::npos);
  }
}

}  // namespace
}  // namespace plait::test
