// Bodies that the executor runs: If, Loop, and Scan, which pass scan makes a Loop.
#include <gtest/gtest.h>

#include <thread>

#include "core/base/text.h"
#include "tests/unit/exec/runner.h"

namespace plait::test {
namespace {

using Floats = std::vector<float>;

/// x -> 2 x + c, `n` times at most; what x was before each time is scanned. c is captured.
constexpr const char* affine = R"(
input %0 "n" : i64[]
input %1 "x" : f32[s]
input %2 "c" : f32[s]
node "twice" : %3 : ?[...] , %4 : ?[...] = Loop(%0, _, %1, %2) carried=1
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  node "" : %4 : ?[...] = Add(%2, %2)
  node "" : %5 : ?[...] = Add(%4, %3)
  output %1
  output %5
  output %2
}
output %3
output %4
)";

TEST(Loop, EqualsItsUnrolling) {
  Runner runner(affine);
  for (int64_t trips : {3, 1, 6, 0, 2}) {
    Floats x{1, -2}, seen;
    for (int64_t i = 0; i < trips; ++i) {
      seen.insert(seen.end(), x.begin(), x.end());
      x = {2 * x[0] + 10, 2 * x[1] + 20};
    }
    EXPECT_EQ(runner.run({integer(trips), floats({2}, {1, -2}), floats({2}, {10, 20})}), x) << trips;
    EXPECT_EQ(runner.values(1), seen);
    EXPECT_EQ(runner.shape(1), cat("[", trips, ", 2]"));
  }
  // Another size in the next run, with none of the iterations in between.
  runner.run({integer(0), floats({3}, {1, 2, 3}), floats({3}, {0, 0, 0})});
  EXPECT_EQ(runner.shape(1), "[0, 3]");
  EXPECT_EQ(runner.run({integer(1), floats({3}, {1, 2, 3}), floats({3}, {1, 1, 1})}), (Floats{3, 5, 7}));
  EXPECT_NE(runner.refusal({Tensor(DType::i64, {2}), floats({1}, {1}), floats({1}, {1})}).find("input \"n\""),
            std::string::npos);
}

/// Sessions of one graph may be made at once; bodies are inferred in place.
TEST(Loop, IsCompiledByManyThreadsAtOnce) {
  const Graph graph = parse_graph(affine);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k)
        EXPECT_FALSE(compile_plain(graph, World::get().options()).program->instructions.empty());
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Loop, EndsByItsCondition) {
  // Doubles x until its sum is 100 or more, without a limit; the second output counts.
  Runner runner(R"(
input %0 "go" : bool[]
input %1 "x" : f32[s]
const %2 = inline : f32[] = 0
node "until" : %3 : ?[...] , %4 : ?[...] = Loop(_, %0, %1, %2)
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  input %3 : ?[...]
  const %4 = inline : f32[] = 1
  const %5 = inline : f32[] = 100
  node "" : %6 : ?[...] = Add(%2, %2)
  node "" : %7 : ?[...] = ReduceSum(%6) keepdims=0
  node "" : %8 : ?[...] = Less(%7, %5)
  node "" : %9 : ?[...] = Add(%3, %4)
  output %8
  output %6
  output %9
}
output %3
output %4
)");
  EXPECT_EQ(runner.run({boolean(true), floats({2}, {1, 2})}), (Floats{64, 128}));
  EXPECT_EQ(runner.values(1), (Floats{6}));
  EXPECT_EQ(runner.run({boolean(false), floats({2}, {1, 2})}), (Floats{1, 2}));
  EXPECT_EQ(runner.values(1), (Floats{0}));
}

TEST(Loop, CarriedValuesGrowAndExchange) {
  // (a, b) -> (b, a + b) and a list that gets a's value each time: Fibonacci's numbers.
  Runner runner(R"(
input %0 "n" : i64[]
input %1 "list" : f32[k]
const %2 = inline : f32[1] = 1
node "fib" : %3 : ?[...] , %4 : ?[...] , %5 : ?[...] = Loop(%0, _, %2, %2, %1)
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : f32[1]
  input %3 : f32[1]
  input %4 : ?[...]
  node "" : %5 : ?[...] = Add(%2, %3)
  node "" : %6 : ?[...] = Concat(%4, %2) axis=0
  output %1
  output %3
  output %5
  output %6
}
output %3
output %5
)");
  EXPECT_EQ(runner.run({integer(9), floats({1}, {-1})}), (Floats{55}));
  EXPECT_EQ(runner.values(1), (Floats{-1, 1, 1, 2, 3, 5, 8, 13, 21, 34}));
  EXPECT_EQ(runner.run({integer(2), floats({0}, {})}), (Floats{2}));
  EXPECT_EQ(runner.values(1), (Floats{1, 1}));
}

/// As in ONNX Runtime: what neither the operands nor the file's declaration give is 0.
TEST(Loop, AStackOfNoIterationsHasTheSizesThatTheFileDeclares) {
  for (const auto& [sizes, shape] : {std::pair{"", "[0, 2, 0]"},
                                     {" empty_sizes=ints[2, 2, 5, -1]", "[0, 2, 5]"},
                                     {" empty_sizes=ints[2, 9, 5]", "[0, 2, 5]"},
                                     {" empty_sizes=ints[1, 5]", "[0, 2, 0]"},
                                     {" empty_sizes=ints[7, 5]", "[0, 2, 0]"}}) {
    Runner runner(cat(R"(
input %0 "n" : i64[]
input %1 "x" : f32[s, 3]
node "none" : %2 : ?[...] , %3 : ?[...] , %4 : ?[...] = Loop(%0, _, %1))", sizes, R"(
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  node "" : %3 : ?[...] = NonZero(%2)
  node "" : %4 : ?[...] = Neg(%2)
  output %1
  output %2
  output %3
  output %4
}
output %3
output %4
)"));
    runner.run({integer(0), floats({2, 3}, {0, 0, 0, 0, 0, 0})});
    EXPECT_EQ(runner.shape(0), shape) << sizes;
    EXPECT_EQ(runner.shape(1), "[0, 2, 3]") << sizes;
  }
}

TEST(Loop, ScannedValuesOfTwoShapesAreAnErrorThatNamesTheNode) {
  Runner runner(R"(
input %0 "n" : i64[]
input %1 "x" : f32[s]
node "ragged" : %2 : ?[...] , %3 : ?[...] = Loop(%0, _, %1)
body "body" {
  input %0 : i64[]
  input %1 : bool[]
  input %2 : ?[...]
  node "" : %3 : ?[...] = Concat(%2, %2) axis=0
  output %1
  output %3
  output %3
}
output %3
)");
  EXPECT_EQ(runner.run({integer(1), floats({1}, {5})}), (Floats{5, 5}));
  std::string message = runner.refusal({integer(3), floats({1}, {5})});
  for (const char* part : {"ragged", "iteration 1", "scanned output 1", "f32[4]", "f32[2]"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(runner.run({integer(1), floats({2}, {5, 6})}), (Floats{5, 6, 5, 6}));  // still usable
}

TEST(Loop, NestsAndSeesTheScopesAround) {
  // For i below n, j below i: sum += x[j] (x is captured twice), through an If that skips even j.
  Runner runner(R"(
input %0 "n" : i64[]
input %1 "x" : f32[s]
const %2 = inline : f32[] = 0
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
      node "" : %2 : ?[...] = Add(%0, %1)
      output %2
    }
    body "else_branch" {
      input %0 : ?[...]
      input %1 : ?[...]
      output %0
    }
    output %1
    output %9
  }
  output %1
  output %4
}
output %3
)");
  Tensor x = floats({5}, {1, 10, 100, 1000, 10000});
  // i = 0: none; 1: x0; 2: x0 x1; ... of which odd j count.
  EXPECT_EQ(runner.run({integer(5), x}), (Floats{10 + 10 + 1010}));
  EXPECT_EQ(runner.run({integer(2), x}), (Floats{0}));
  std::string message = runner.refusal({integer(9), x});  // x[5] is not there
  for (const char* part : {"outer", "inner", "iteration 5", "index 5"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(If, WhatItHandsThroughOutlivesItsOperand) {
  // The operand is dead after the If, and the values made then need all the memory there is.
  Runner runner(R"(
input %0 "c" : bool[]
input %1 "x" : f32[s]
node "" : %2 : ?[...] = Neg(%1)
node "if" : %3 : ?[...] = If(%0, %2)
body "then_branch" {
  input %0 : ?[...]
  node "" : %1 : ?[...] = Identity(%0)
  output %1
}
body "else_branch" {
  input %0 : ?[...]
  node "" : %1 : ?[...] = Exp(%0)
  output %1
}
node "" : %4 : ?[...] = Exp(%1)
node "" : %5 : ?[...] = Sqrt(%4)
node "" : %6 : ?[...] = Mul(%5, %3)
output %6
)");
  EXPECT_EQ(runner.run({boolean(true), floats({2}, {0, 0})}), (Floats{0, 0}));
  Floats y = runner.run({boolean(true), floats({3}, {2, 4, 6})});
  for (size_t i = 0; i < y.size(); ++i) {
    float x = static_cast<float>(2 * i + 2);
    EXPECT_NEAR(y[i], -x * std::exp(x / 2), 1e-4f * x * std::exp(x / 2));
  }
}

/// Running sums over `axis` of x [2, 3] (or as `attributes` specify), as ONNX's Scan.
std::string running_sums(const std::string& attributes) {
  return cat(R"(
input %0 "start" : f32[k]
input %1 "x" : f32[a, b]
node "sums" : %2 : ?[...] , %3 : ?[...] = Scan(%0, %1) num_scan_inputs=1 )",
             attributes, R"(
body "body" {
  input %0 : ?[...]
  input %1 : ?[...]
  node "" : %2 : ?[...] = Add(%0, %1)
  output %2
  output %2
}
output %2
output %3
)");
}

TEST(Scan, RunsAlongItsAxesInTheirDirections) {
  Tensor x = floats({2, 3}, {1, 2, 3, 10, 20, 30}), two = floats({2}, {0, 100}), three = floats({3}, {0, 0, 100});
  Runner rows(running_sums(""));
  EXPECT_EQ(rows.run({three, x}), (Floats{11, 22, 133}));
  EXPECT_EQ(rows.values(1), (Floats{1, 2, 103, 11, 22, 133}));
  Runner columns(running_sums("scan_input_axes=ints[-1] scan_output_axes=ints[1]"));
  EXPECT_EQ(columns.run({two, x}), (Floats{6, 160}));
  EXPECT_EQ(columns.values(1), (Floats{1, 3, 6, 110, 130, 160}));
  EXPECT_EQ(columns.shape(1), "[2, 3]");
  Runner backwards(
      running_sums("scan_input_axes=ints[1] scan_input_directions=ints[1] scan_output_axes=ints[-1] "
                   "scan_output_directions=ints[1]"));
  EXPECT_EQ(backwards.run({two, x}), (Floats{6, 160}));
  EXPECT_EQ(backwards.values(1), (Floats{6, 5, 3, 160, 150, 130}));
  Runner half(running_sums("scan_input_directions=ints[1]"));
  EXPECT_EQ(half.run({three, x}), (Floats{11, 22, 133}));
  EXPECT_EQ(half.values(1), (Floats{10, 20, 130, 11, 22, 133}));
}

TEST(Scan, OfNothingIsNothing) {
  Runner runner(running_sums("scan_input_axes=ints[1] scan_output_axes=ints[1]"));
  EXPECT_EQ(runner.run({floats({2}, {7, 8}), Tensor(DType::f32, {2, 0})}), (Floats{7, 8}));
  EXPECT_EQ(runner.shape(1), "[2, 0]");
  EXPECT_EQ(runner.run({floats({2}, {7, 8}), floats({2, 1}, {1, 1})}), (Floats{8, 9}));
}

TEST(Scan, SeveralInputsAndACapture) {
  // y[i] = x[i] * w[n - 1 - i] + c, no state.
  Runner runner(R"(
input %0 "x" : f32[n]
input %1 "w" : f32[m]
input %2 "c" : f32[]
node "zip" : %3 : ?[...] = Scan(%0, %1, %2) num_scan_inputs=2 carried=0 scan_input_directions=ints[0, 1]
body "body" {
  input %0 : ?[...]
  input %1 : ?[...]
  input %2 : ?[...]
  node "" : %3 : ?[...] = Mul(%0, %1)
  node "" : %4 : ?[...] = Add(%3, %2)
  output %4
}
output %3
)");
  EXPECT_EQ(runner.run({floats({3}, {1, 2, 3}), floats({3}, {10, 20, 30}), floats({}, {0.5})}),
            (Floats{30.5, 40.5, 30.5}));
  for (int64_t other : {2, 4}) {
    std::string message = runner.refusal({floats({3}, {1, 2, 3}), Tensor(DType::f32, {other}), floats({}, {0})});
    EXPECT_NE(message.find("zip"), std::string::npos) << message;
  }
}

TEST(Scan, InsideOtherBodies) {
  // A Scan of a Scan: cumulative sums of x [a, b] along b for each row, through an If.
  Runner runner(R"(
input %0 "c" : bool[]
input %1 "x" : f32[a, b]
node "if" : %2 : ?[...] = If(%0, %1)
body "then_branch" {
  input %0 : ?[...]
  node "rows" : %1 : ?[...] = Scan(%0) num_scan_inputs=1
  body "body" {
    input %0 : ?[...]
    const %1 = inline : f32[] = 0
    node "sum" : _ , %2 : ?[...] = Scan(%1, %0) num_scan_inputs=1
    body "body" {
      input %0 : ?[...]
      input %1 : ?[...]
      node "" : %2 : ?[...] = Add(%0, %1)
      output %2
      output %2
    }
    output %2
  }
  output %1
}
body "else_branch" {
  input %0 : ?[...]
  node "" : %1 : ?[...] = Neg(%0)
  output %1
}
output %2
)");
  EXPECT_EQ(runner.run({boolean(true), floats({2, 3}, {1, 2, 3, 4, 5, 6})}), (Floats{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(runner.shape(0), "[2, 3]");
  EXPECT_EQ(runner.run({boolean(false), floats({1, 1}, {4})}), (Floats{-4}));
}

}  // namespace
}  // namespace plait::test
