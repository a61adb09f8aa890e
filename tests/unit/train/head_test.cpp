// Heads and what stands after them: joined with the loss or not, they are trained as the graph specifies.
#include <algorithm>

#include "core/passes/train/compile_training.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

/// What is done to the products: "* 0.5", "tanh", "+" (a bias, [v]), "+ row" (one as [1, 1, v]), "+ one" (a number).
using Steps = std::vector<std::string>;

/// These steps after the graph's head.
Graph with_steps(Graph graph, const Steps& steps, int64_t v) {
  const ValueId logits = graph.outputs[0];
  const Type type = graph.value(logits).type;
  ValueId now = graph.add_value("", type);
  for (Node& node : graph.nodes) std::replace(node.outputs.begin(), node.outputs.end(), logits, now);
  for (const std::string& step : steps) {
    std::vector<ValueId> inputs{now};
    if (step[0] == '*') {
      const float factor = std::stof(step.substr(1));
      inputs.push_back(graph.add_constant(Tensor::of<float>(DType::f32, Shape(), {&factor, 1})));
    } else if (step[0] == '+') {
      Tensor bias(DType::f32, step == "+" ? Shape{v} : step == "+ row" ? Shape{1, 1, v} : Shape{1});
      for (int64_t i = 0; i < bias.elements(); ++i) bias.as<float>()[i] = std::sin(static_cast<float>(i));
      const std::string name = cat("head.bias.", graph.value_count());
      inputs.insert(inputs.begin() + (step == "+ row" ? 0 : 1), graph.add_constant(Constant{name, bias, {}}, name));
    }
    const char* op = step == "tanh" ? "Tanh" : step[0] == '*' ? "Mul" : "Add";
    now = graph.add_node(op, std::move(inputs)).outputs[0];
    graph.value(now).type = type;
  }
  graph.outputs[0] = now;
  return graph;
}

/// The product, a factor, a bias, a factor, and a soft cap, of which any may be missing: those are joined with the
/// loss.
TEST(Heads, AreTrainedAsTheGraphSays) {
  const std::pair<Steps, bool> forms[] = {
      {{}, true},
      {{"* 0.5"}, true},
      {{"+"}, true},
      {{"* 0.5", "+ row", "* 3"}, true},
      {{"* 0.1", "tanh", "* 5"}, true},
      {{"* 0.1", "+", "* 2", "tanh", "* 5"}, true},
      {{"* 0.1", "+", "tanh", "* 5"}, true},
      {{"+", "+"}, false},
      {{"+ one"}, false},
      {{"* 0.1", "tanh", "+"}, false},
      {{"* 0.1", "tanh", "* -2"}, false},
  };
  const Graph plain = fixture_graph("gpt2-optimum18");
  const TrainingOptions how = training(OptimizerKind::sgd, 0);
  const int64_t vocabulary = compile_training(plain, World::get().options(), how).decoder.vocabulary;
  for (const auto& [steps, joined] : forms) {
    SCOPED_TRACE(join(steps, " "));
    const Graph graph = with_steps(plain, steps, vocabulary);
    TrainingOptions options = how;
    const TrainingModel model = compile_training(graph, World::get().options(), options);
    const std::vector<Instruction>& all = model.program(TrainingProgram::accumulate).instructions;
    EXPECT_EQ(std::any_of(all.begin(), all.end(),
                          [](const Instruction& one) { return one.kernel && one.kernel->op == "plait.HeadLoss"; }),
              joined);
    const Outcome got = run(graph, "", options);
    expect_same(run(graph, "tensor=2", options), got);
    options.host_loss = true;
    expect_same(got, run(graph, "", options));
  }
}

/// A head with a bias, where all is trained, only the bias, or adapters before it: as a host has it that computes
/// the loss of all logits, and on every mesh as on one rank.
TEST(Heads, WithABiasOnMeshes) {
  TrainingOptions of_all = training(OptimizerKind::sgd, 0), of_bias = of_all, of_adapters = of_all;
  of_bias.trained = {"*lm_head*bias"};
  of_adapters.lora.rank = 4;
  for (TrainingOptions options : {of_all, of_bias, of_adapters}) {
    SCOPED_TRACE(cat("patterns ", options.trained.size(), ", rank ", options.lora.rank));
    for (const char* fixture : {"zoo/gptj/optimum18", "zoo/phi/genai_fp32"}) {
      options.host_loss = false;
      const Outcome got = run(fixture, "", options);
      EXPECT_EQ(options.trained.empty(), got.updates.size() > 1);
      options.host_loss = true;
      expect_same(got, run(fixture, "", options));
    }
    options.host_loss = false;
    const Outcome expected = run("zoo/gptj/optimum18", "", options, nullptr, DType::f64);
    const bool all_trained = options.trained.empty() && !options.lora.rank;
    for (options.zero = 0; options.zero < 4; options.zero += all_trained ? 1 : 3) {
      SCOPED_TRACE(options.zero);
      const char* mesh = options.zero == 1 ? "tensor=2" : "data=2,tensor=2";
      expect_same(run("zoo/gptj/optimum18", mesh, options, nullptr, DType::f64), expected, in_f64);
    }
  }
}

}  // namespace
}  // namespace plait::test
