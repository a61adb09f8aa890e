// Strings as values of a graph.
#include <gtest/gtest.h>

#include "core/base/strings.h"
#include "core/passes/compile.h"
#include "tests/unit/exec/runner.h"

namespace plait::test {
namespace {

using Texts = std::vector<std::string>;

/// Where the default device is no host, strings are refused.
class Strings : public testing::Test {
 protected:
  void SetUp() override {
    if (World::get().options().device != DeviceKind::host) GTEST_SKIP();
  }
};

Tensor strings(const Shape& shape, const Texts& texts) { return packed_strings(shape, texts); }

Texts run(Runner& runner, const std::vector<Tensor>& inputs, int output = 0) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : inputs) views.push_back(tensor.view());
  runner.executor->run(views);
  Texts out;
  const Tensor made = runner.executor->copy_of_output(output);
  for (std::string_view text : packed_texts(made.view())) out.emplace_back(text);
  return out;
}

Graph with_constant(const std::string& text, const char* name, const Tensor& value) {
  Graph graph = parse_graph(text);
  const ValueId id = graph.find(name);
  graph.value(id).constant = std::make_shared<Constant>(Constant{{}, value, {}});
  std::erase(graph.inputs, id);
  return graph;
}

TEST_F(Strings, MoveAsOtherElementsDo) {
  Runner runner(R"(
    input %0 "x" : string[a, 3]
    input %1 "i" : i64[n]
    node "t" : %2 : string[3, a] = Transpose(%0) perm=ints[1, 0]
    node "g" : %3 : string[n, a] = Gather(%2, %1) axis=0
    node "c" : %4 : string[m, a] = Concat(%3, %2) axis=0
    output %4 "y"
  )");
  const Tensor x = strings(Shape{2, 3}, {"a", "b", "c", "d", "", "f"});
  const std::vector<int64_t> indices{2, -3};
  EXPECT_EQ(run(runner, {x, Tensor::of_ints(indices)}), (Texts{"c", "f", "a", "d", "a", "d", "b", "", "c", "f"}));
}

/// Numbers of texts differ from run to run; a graph's constants and a run's strings are compared all the same.
TEST_F(Strings, OfConstantsAndInputsCompare) {
  Runner runner(with_constant(R"(
    input %0 "x" : string[n]
    input %1 "k" : string[1]
    node "e" : %2 : bool[n] = Equal(%0, %1)
    node "w" : %3 : string[n] = Where(%2, %0, %1)
    output %2 "e"
    output %3 "w"
  )",
                              "k", strings(Shape{1}, {"key"})));
  for (const Texts& texts : {Texts{"no", "key", ""}, Texts{"key", "key"}, Texts{"x", "y", "z", "key"}}) {
    EXPECT_EQ(run(runner, {strings(Shape{std::ssize(texts)}, texts)}, 1), Texts(texts.size(), "key"));
    const TensorView equal = runner.executor->output(0);
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(equal.as<uint8_t>()[i] != 0, texts[i] == "key");
  }
}

constexpr const char* doubling = R"(
    input %0 "x" : string[]
    input %1 "times" : i64[]
    node "l" : %2 : string[] = Loop(%1, _, %0)
    body "body" {
      input %0 "i" : i64[]
      input %1 "go" : bool[]
      input %2 "s" : string[]
      node "d" : %3 : string[] = StringConcat(%2, %2)
      output %1
      output %3
    }
    output %2 "y"
  )";

TEST_F(Strings, AreCarriedThroughLoops) {
  Runner runner(doubling);
  EXPECT_EQ(run(runner, {strings(Shape{}, {"ab"}), integer(3)}), Texts{"abababababababab"});
}

TEST_F(Strings, AreAsManyAsTheInputs) {
  Runner runner(doubling);
  const Tensor text = strings(Shape{}, {"a"});
  EXPECT_EQ(runner.refusal({text}), "expected 2 inputs, got 1");
  EXPECT_EQ(runner.refusal({text, integer(1), text}), "expected 2 inputs, got 3");
}

/// A text doubled 40 times has a terabyte; and so has an output of many long ones.
TEST_F(Strings, AreBoundedByTheBudget) {
  Runner runner(doubling, std::make_shared<MemoryBudget>(1 << 22));
  const std::string refusal = runner.refusal({strings(Shape{}, {"a"}), integer(40)});
  EXPECT_NE(refusal.find("iteration 2"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("its limit is"), std::string::npos) << refusal;
  Runner many(R"(
    input %0 "x" : string[1]
    input %1 "shape" : i64[1]
    node "e" : %2 : string[n] = Expand(%0, %1)
    output %2 "y"
  )",
              std::make_shared<MemoryBudget>(1 << 22));
  const std::vector<int64_t> count{100'000};
  EXPECT_THROW(run(many, {strings(Shape{1}, {std::string(1000, 'x')}), Tensor::of_ints(count)}), Error);
  EXPECT_EQ(run(runner, {strings(Shape{}, {"a"}), integer(2)}), Texts{"aaaa"})
      << "the memory of a run that failed is free";
}

TEST_F(Strings, UniqueSortsByText) {
  Runner runner(R"(
    input %0 "x" : string[n]
    node "u" : %1 : string[k] , %2 : i64[k] , %3 : i64[n] , %4 : i64[k] = Unique(%0)
    output %1 "y"
    output %3 "inverse"
  )");
  EXPECT_EQ(run(runner, {strings(Shape{5}, {"pear", "apple", "pear", "", "fig"})}),
            (Texts{"", "apple", "fig", "pear"}));
  const TensorView inverse = runner.executor->output(1);
  EXPECT_EQ(to_ints(inverse), (std::vector<int64_t>{3, 1, 3, 0, 2}));
}

TEST_F(Strings, CastBothWays) {
  Runner runner(R"(
    input %0 "x" : f32[n]
    node "s" : %1 : string[n] = Cast(%0) to=8
    node "f" : %2 : f32[n] = Cast(%1) to=1
    output %1 "text"
    output %2 "back"
  )");
  const std::vector<float> numbers{0.1f, -3.0f, 1e-30f, 16777216.0f, INFINITY, -INFINITY, 3.4028235e38f, -0.0f};
  const Tensor x = Tensor::of<float>(DType::f32, Shape{std::ssize(numbers)}, numbers);
  const Texts texts = run(runner, {x});
  EXPECT_EQ((Texts{texts.begin(), texts.begin() + 6}), (Texts{"0.1", "-3", "1e-30", "16777216", "INF", "-INF"}));
  EXPECT_EQ(runner.values(1), numbers);
}

TEST_F(Strings, ThatAreNoNumbersAreNamed) {
  const char* const graph = R"(
    input %0 "x" : string[n]
    node "f" : %1 : i32[n] = Cast(%0) to=6
    node "g" : %2 : f64[n] = Cast(%0) to=11
    output %1 "i"
    output %2 "f"
  )";
  Runner runner(graph);
  EXPECT_EQ(runner.refusal({strings(Shape{3}, {"1", " +25 ", "-3"})}), "");
  EXPECT_EQ(to_ints(runner.executor->output(0)), (std::vector<int64_t>{1, 25, -3}));
  const std::string refusal = runner.refusal({strings(Shape{2}, {"1", "12b"})});
  for (const char* part : {"\"f\"", "element 1", "\"12b\"", "i32"})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
}

TEST_F(Strings, OfNumbersBeyondTheRange) {
  Runner runner(R"(
    input %0 "x" : string[n]
    node "f" : %1 : f32[n] = Cast(%0) to=1
    output %1 "f"
  )");
  const Texts texts{"1e400", "-1e400", "1e-400", "-0.001e5000", "1234567890123456789012345678901234567890",
                    "nan",   "+Inf",   "0x10"};
  const std::vector<float> got = runner.run({strings(Shape{7}, {texts.begin(), texts.begin() + 7})});
  EXPECT_EQ((std::vector<float>{got.begin(), got.begin() + 5}),
            (std::vector<float>{INFINITY, -INFINITY, 0, -INFINITY, INFINITY}));
  EXPECT_TRUE(std::isnan(got[5]));
  EXPECT_EQ(got[6], INFINITY);
  EXPECT_NE(runner.refusal({strings(Shape{1}, {texts[7]})}), "");
}

TEST_F(Strings, AreRefusedOnDevices) {
  const auto refusal = [](CompileOptions options) {
    try {
      compile_plain(
          parse_graph(
              "input %0 \"x\" : string[n]\nnode \"t\" : %1 : string[m] = Concat(%0, %0) axis=0\noutput %1 \"y\""),
          options);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  CompileOptions device = World::get().options();
  device.device = DeviceKind::cuda;
  EXPECT_NE(refusal(device).find("\"x\" is of strings, which a device does not hold"), std::string::npos)
      << refusal(device);
}

/// Each iteration draws other numbers, and a run the same as the last.
TEST(RandomInLoops, DrawAnewInEachIteration) {
  Runner runner(R"(
    input %0 "times" : i64[]
    node "l" : %1 : f32[k, 4] = Loop(%0, _) carried=0
    body "body" {
      input %0 "i" : i64[]
      input %1 "go" : bool[]
      node "r" : %2 : f32[4] = RandomUniform() shape=ints[4] seed=3.0
      output %1
      output %2
    }
    output %1 "y"
  )");
  const std::vector<float> first = runner.run({integer(3)}), again = runner.run({integer(3)});
  ASSERT_EQ(first.size(), 12u);
  EXPECT_EQ(first, again);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(first[i], first[4 + i]);
    EXPECT_NE(first[i], first[8 + i]);
    EXPECT_NE(first[4 + i], first[8 + i]);
  }
}

}  // namespace
}  // namespace plait::test
