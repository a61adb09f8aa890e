// Gradients through If, Loop, Scan and sequences, next to central differences in f64 of the graph as it runs.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/passes/normalize/normalize.h"
#include "tests/unit/exec/runner.h"
#include "tests/unit/support/kernel_test.h"

namespace plait::test {
namespace {

Tensor wide(const Shape& shape, std::vector<double> values) { return Tensor::of<double>(DType::f64, shape, values); }

/// A graph, and its inputs by default: floats are differentiated, others are as given.
class Differentiated {
 public:
  Differentiated(const std::string& text, std::vector<Tensor> inputs) : inputs_(std::move(inputs)) {
    Graph graph = parse_graph(text);
    const CompileOptions options = World::get().options();
    PassContext context{options};
    Knowledge knowledge;
    infer_graph(options.ops, graph, knowledge);
    const Pass passes[] = {{"scan", scan}};
    run_passes(passes, graph, context);
    outputs_ = graph.outputs.size();
    forward_ = std::make_unique<Runner>(graph);
    std::vector<GradientSeed> seeds;
    for (size_t k = 0; k < outputs_; ++k) {
      const ValueId made = graph.outputs[k], seed = graph.add_value(cat("seed", k), graph.value(made).type);
      graph.inputs.push_back(seed);
      seeds.push_back({made, seed});
    }
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (inputs_[k].dtype() == DType::f64) wanted_.push_back(k);
    std::vector<ValueId> ids;
    for (const size_t k : wanted_) ids.push_back(graph.inputs[k]);
    gradients_ = add_gradients(options.ops, graph, seeds, ids);
    for (const ValueId id : gradients_)
      if (id != no_value) graph.outputs.push_back(id);
    graph.sort();
    verify(graph, "gradients");
    backward_ = std::make_unique<Runner>(graph);
  }

  size_t found() const {
    return static_cast<size_t>(
        std::count_if(gradients_.begin(), gradients_.end(), [](ValueId id) { return id != no_value; }));
  }

  void expect_differences() const { expect_differences(inputs_); }

  void expect_differences(std::vector<Tensor> inputs) const {
    run(*forward_, inputs);
    std::mt19937 random(4);
    std::normal_distribution<double> normal;
    std::vector<Tensor> seeds;
    for (size_t k = 0; k < outputs_; ++k) {
      Tensor seed(DType::f64, forward_->executor->output(static_cast<int>(k)).shape);
      for (int64_t i = 0; i < seed.elements(); ++i) seed.as<double>()[i] = normal(random);
      seeds.push_back(std::move(seed));
    }
    std::vector<Tensor> all = inputs;
    all.insert(all.end(), seeds.begin(), seeds.end());
    run(*backward_, all);
    auto at = static_cast<int>(outputs_);
    for (size_t w = 0; w < wanted_.size(); ++w) {
      Tensor& x = inputs[wanted_[w]];
      Tensor gradient(DType::f64, x.shape());
      if (gradients_[w] != no_value) {
        const TensorView made = backward_->executor->output(at++);
        ASSERT_EQ(made.shape, x.shape()) << "input " << wanted_[w];
        std::copy_n(made.as<double>(), x.elements(), gradient.as<double>());
      } else {
        std::fill_n(gradient.as<double>(), x.elements(), 0.0);
      }
      for (int64_t i = 0; i < x.elements(); ++i) {
        const double before = x.as<double>()[i];
        auto value = [&](double by) {
          x.as<double>()[i] = before + by;
          return scalar(inputs, seeds);
        };
        constexpr double h = 1e-4;
        const double expected = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h);
        x.as<double>()[i] = before;
        EXPECT_NEAR(gradient.as<double>()[i], expected, 1e-7 * (1 + std::fabs(expected)))
            << "input " << wanted_[w] << " [" << i << "]";
      }
    }
  }

 private:
  static void run(Runner& runner, const std::vector<Tensor>& inputs) {
    std::vector<TensorView> views;
    for (const Tensor& tensor : inputs) views.push_back(tensor.view());
    runner.executor->run(views);
  }
  double scalar(const std::vector<Tensor>& inputs, const std::vector<Tensor>& seeds) const {
    run(*forward_, inputs);
    double sum = 0;
    for (size_t k = 0; k < outputs_; ++k) {
      const TensorView made = forward_->executor->output(static_cast<int>(k));
      for (int64_t i = 0; i < made.elements(); ++i) sum += made.as<double>()[i] * seeds[k].as<double>()[i];
    }
    return sum;
  }

  std::vector<Tensor> inputs_;
  size_t outputs_ = 0;
  std::vector<size_t> wanted_;
  std::vector<ValueId> gradients_;
  std::unique_ptr<Runner> forward_, backward_;
};

TEST(Branches, HaveGradients) {
  const Differentiated graph(
      R"(
input %0 "which" : bool[]
input %1 "x" : f64[s]
input %2 "y" : f64[s]
input %3 "z" : f64[s]
node "one" : %4 : ?[...] , %5 : ?[...] = If(%0, %1, %2, %3)
body "then_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  node "" : %3 : ?[...] = Mul(%0, %1)
  node "" : %4 : ?[...] = Sin(%3)
  output %4
  output %0
}
body "else_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  node "" : %3 : ?[...] = Exp(%0)
  output %3
  output %3
}
node "" : %6 : ?[...] = Mul(%4, %5)
output %6
)",
      {boolean(true), wide({3}, {0.5, -1, 2}), wide({3}, {1.5, 0.25, -0.75}), wide({3}, {1, 2, 3})});
  EXPECT_EQ(graph.found(), 2u) << "z is not read";
  graph.expect_differences();
  graph.expect_differences({boolean(false), wide({2}, {0.5, -1}), wide({2}, {1.5, 0.25}), wide({2}, {1, 2})});
}

/// x -> tanh(w x + c i) while it runs; each x is scanned before its step.
constexpr const char* stepping = R"(
input %0 "n" : i64[]
input %1 "x" : f64[s]
input %2 "w" : f64[s]
input %3 "c" : f64[]
node "steps" : %4 : ?[...] , %5 : ?[...] = Loop(%0, _, %1, %2, %3) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  input %4 : ?[...]
  node "" : %5 : ?[...] = Cast(%0) to=11
  node "" : %6 : ?[...] = Mul(%5, %4)
  node "" : %7 : ?[...] = Mul(%2, %3)
  node "" : %8 : ?[...] = Add(%7, %6)
  node "" : %9 : ?[...] = Tanh(%8)
  output %1
  output %9
  output %2
}
output %4
output %5
)";

TEST(Loops, HaveGradientsOfCarriedStackedAndCaptured) {
  const Tensor x = wide({3}, {0.5, -1, 2}), w = wide({3}, {1.5, 0.25, -0.75}), c = wide({}, {0.3});
  const Differentiated graph(stepping, {integer(4), x, w, c});
  EXPECT_EQ(graph.found(), 3u);
  for (int64_t trips : {4, 1, 0}) graph.expect_differences({integer(trips), x, w, c});
}

TEST(Loops, OfWhichNothingIsKept) {
  const Differentiated graph(R"(
input %0 "n" : i64[]
input %1 "x" : f64[2]
input %2 "c" : f64[2]
node "twice" : %3 : ?[...] = Loop(%0, _, %1, %2) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  node "" : %4 : ?[...] = Add(%2, %2)
  node "" : %5 : ?[...] = Add(%4, %3)
  output %1
  output %5
}
output %3
)",
                             {integer(3), wide({2}, {1, -2}), wide({2}, {10, 20})});
  graph.expect_differences();
}

/// Ends by a condition on x; a carried value without a gradient counts, and is read.
TEST(Loops, ThatEndByAConditionHaveGradients) {
  const Differentiated graph(R"(
input %0 "x" : f64[2]
input %1 "grow" : f64[]
const %2 = inline : i64[] = 1
const %3 = inline : bool[] = 1
node "until" : %4 : ?[...] , %5 : ?[...] = Loop(_, %3, %0, %2, %1) carried=2
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  input %4 : ?[...]
  const %5 = inline : f64[] = 50
  node "" : %6 : ?[...] = Mul(%2, %4)
  node "" : %7 : ?[...] = Cast(%3) to=11
  node "" : %8 : ?[...] = Mul(%6, %7)
  node "" : %9 : ?[...] = ReduceSum(%8) keepdims=0
  node "" : %10 : ?[...] = Less(%9, %5)
  node "" : %11 : ?[...] = Add(%3, %0)
  output %10
  output %8
  output %11
}
output %4
)",
                             {wide({2}, {1, 2}), wide({}, {1.7})});
  graph.expect_differences();
}

/// What is carried grows by a row each time, and all of it is read.
TEST(Loops, WhoseCarriedValuesGrowHaveGradients) {
  const Differentiated graph(R"(
input %0 "n" : i64[]
input %1 "x" : f64[s, 2]
input %2 "w" : f64[2]
node "grow" : %3 : ?[...] = Loop(%0, _, %1, %2) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  const %4 = inline : i64[1] = 0
  node "" : %5 : ?[...] = Mul(%2, %2)
  node "" : %6 : ?[...] = ReduceMean(%5, %4) keepdims=1
  node "" : %7 : ?[...] = Mul(%6, %3)
  node "" : %8 : ?[...] = Concat(%2, %7) axis=0
  output %1
  output %8
}
output %3
)",
                             {integer(3), wide({2, 2}, {0.5, -1, 2, 0.75}), wide({2}, {1.5, 0.25})});
  graph.expect_differences();
  graph.expect_differences({integer(2), wide({1, 2}, {0.5, -1}), wide({2}, {1.5, 0.25})});
}

TEST(Loops, ThatDrawHaveTheSameNumbersBackwards) {
  const Differentiated graph(R"(
input %0 "n" : i64[]
input %1 "x" : f64[3]
node "noise" : %2 : ?[...] = Loop(%0, _, %1) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  node "" : %3 : ?[...] = RandomNormalLike(%2) seed=7.0
  node "" : %4 : ?[...] = Mul(%2, %3)
  node "" : %5 : ?[...] = Sin(%4)
  output %1
  output %5
}
output %2
)",
                             {integer(3), wide({3}, {0.5, -1, 2})});
  graph.expect_differences();
}

TEST(Loops, InLoopsWithBranchesHaveGradients) {
  const Differentiated graph(R"(
input %0 "n" : i64[]
input %1 "x" : f64[s]
input %2 "start" : f64[]
node "outer" : %3 : ?[...] = Loop(%0, _, %2, %1) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  node "inner" : %4 : ?[...] = Loop(%0, _, %2, %3) carried=1
  body "body" {
    input %0 : i64[]
    input %1 : bool[]
    input %2 : ?[...]
    input %3 : ?[...]
    const %4 = inline : i64[] = 2
    const %5 = inline : i64[] = 1
    node "" : %6 : ?[...] = Mod(%0, %4)
    node "" : %7 : ?[...] = Equal(%6, %5)
    node "" : %8 : ?[...] = Gather(%3, %0) axis=0
    node "odd" : %9 : ?[...] = If(%7, %2, %8)
    body "then_branch" {
      input %0 : ?[...]
      input %1 : ?[...]
      node "" : %2 : ?[...] = Mul(%0, %1)
      node "" : %3 : ?[...] = Cos(%2)
      output %3
    }
    body "else_branch" {
      input %0 : ?[...]
      input %1 : ?[...]
      node "" : %2 : ?[...] = Add(%0, %1)
      node "" : %3 : ?[...] = Tanh(%2)
      output %3
    }
    output %1
    output %9
  }
  output %1
  output %4
}
output %3
)",
                             {integer(4), wide({4}, {0.5, -1, 2, 0.75}), wide({}, {0.2})});
  graph.expect_differences();
}

TEST(Scans, HaveGradientsInEachDirection) {
  for (const char* attributes : {"", " scan_input_directions=ints[1, 0] scan_output_directions=ints[1]",
                                 " scan_input_axes=ints[1, 0] scan_output_axes=ints[1]"}) {
    SCOPED_TRACE(attributes);
    const Differentiated graph(cat(R"(
input %0 "state" : f64[2]
input %1 "x" : f64[3, 3]
input %2 "y" : f64[3, 2]
input %3 "w" : f64[2, 2]
node "cell" : %4 : ?[...] , %5 : ?[...] = Scan(%0, %1, %2, %3) num_scan_inputs=2 carried=1)",
                                   attributes, R"(
body "body" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  input %3 : ?[...]
  node "" : %4 : ?[...] = MatMul(%0, %3)
  const %5 = inline : i64[] = 1
  node "" : %6 : ?[...] = Gather(%1, %5) axis=0
  node "" : %7 : ?[...] = Add(%4, %2)
  node "" : %8 : ?[...] = Mul(%7, %6)
  node "" : %9 : ?[...] = Tanh(%8)
  output %9
  output %8
}
output %4
output %5
)"),
                               {wide({2}, {0.1, -0.2}), wide({3, 3}, {1, 2, 3, -0.5, 0.4, 0.3, 0.2, -0.7, 1.1}),
                                wide({3, 2}, {0.5, -1, 2, 0.75, -0.1, 0.6}), wide({2, 2}, {0.3, -0.4, 0.9, 0.2})});
    graph.expect_differences();
  }
}

TEST(Sequences, HaveGradients) {
  const Differentiated graph(
      R"(
input %0 "at" : i64[]
input %1 "x" : f64[4, 2]
input %2 "y" : f64[1, 2]
node "rows" : %3 : ?[...] = SplitToSequence(%1) axis=0 keepdims=1
node "more" : %4 : ?[...] = SequenceInsert(%3, %2, %0)
node "one" : %5 : ?[...] = SequenceAt(%4, %0)
node "fewer" : %6 : ?[...] = SequenceErase(%4)
node "two" : %7 : ?[...] = SequenceConstruct(%2, %2)
node "" : %8 : ?[...] = ConcatFromSequence(%6) axis=0
node "" : %9 : ?[...] = ConcatFromSequence(%7) axis=1 new_axis=1
const %10 = inline : i64[2] = 2 2
const %11 = inline : i64[2] = 4 2
node "" : %12 : ?[...] = Reshape(%9, %10)
node "" : %13 : ?[...] = Mul(%8, %5)
node "" : %14 : ?[...] = Reshape(%13, %11)
node "" : %15 : ?[...] = MatMul(%14, %12)
output %15
)",
      {integer(1), wide({4, 2}, {0.5, -1, 2, 0.75, -0.1, 0.6, 0.9, 1.2}), wide({1, 2}, {0.3, -0.4})});
  EXPECT_EQ(graph.found(), 2u);
  for (int64_t at : {1, 0, -1, -3, 4})
    graph.expect_differences(
        {integer(at), wide({4, 2}, {0.5, -1, 2, 0.75, -0.1, 0.6, 0.9, 1.2}), wide({1, 2}, {0.3, -0.4})});
}

/// A list of parts of several sizes, which a loop maps to another one and reads.
TEST(Sequences, InLoopsHaveGradients) {
  const Differentiated graph(R"(
input %0 "x" : f64[6]
input %1 "w" : f64[]
const %2 = inline : i64[3] = 1 3 2
node "parts" : %3 : ?[...] = SplitToSequence(%0, %2) axis=0
node "count" : %4 : ?[...] = SequenceLength(%3)
node "none" : %5 : ?[...] = SequenceEmpty() dtype=11
node "map" : %6 : ?[...] , %7 : ?[...] = Loop(%4, _, %5, %1, %3) carried=2
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  input %4 : ?[...]
  node "" : %5 : ?[...] = SequenceAt(%4, %0)
  node "" : %6 : ?[...] = Mul(%5, %3)
  node "" : %7 : ?[...] = SequenceInsert(%2, %6)
  node "" : %8 : ?[...] = ConcatFromSequence(%7) axis=0
  const %9 = inline : i64[1] = -1
  node "" : %10 : ?[...] = Reshape(%8, %9)
  node "" : %11 : ?[...] = ReduceSumSquare(%10) keepdims=0
  node "" : %12 : ?[...] = Tanh(%11)
  output %1
  output %7
  output %12
}
node "" : %8 : ?[...] = ConcatFromSequence(%6) axis=0
const %9 = inline : i64[1] = 6
node "" : %10 : ?[...] = Reshape(%8, %9)
output %10
output %7
)",
                             {wide({6}, {0.5, -0.2, 0.3, 0.75, -0.1, 0.6}), wide({}, {0.8})});
  EXPECT_EQ(graph.found(), 2u);
  graph.expect_differences();
}

}  // namespace
}  // namespace plait::test
