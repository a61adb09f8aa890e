// The executor and the planner of its memory.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "core/base/text.h"
#include "tests/unit/exec/runner.h"

namespace plait::test {
namespace {

TEST(PlanOffsets, NeverOverlapsWhatLivesTogether) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    size_t count = 1 + random() % 60;
    std::vector<int64_t> sizes(count), offsets(count);
    std::vector<int32_t> born(count), dies(count);
    int64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sizes[i] = static_cast<int64_t>(random() % 5000);
      born[i] = static_cast<int32_t>(random() % 40);
      dies[i] = born[i] + static_cast<int32_t>(random() % 10);
      sum += (sizes[i] + 63) / 64 * 64;
    }
    int64_t total = plan_offsets(sizes, born, dies, offsets);
    EXPECT_LE(total, sum);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(offsets[i] % 64, 0);
      EXPECT_LE(offsets[i] + sizes[i], total);
      for (size_t j = 0; j < i; ++j) {
        bool together = born[i] <= dies[j] && born[j] <= dies[i];
        bool apart = offsets[i] + sizes[i] <= offsets[j] || offsets[j] + sizes[j] <= offsets[i];
        EXPECT_TRUE(!together || apart || sizes[i] == 0 || sizes[j] == 0);
      }
    }
  }
}

TEST(Executor, SizesFollowTheInputsOfEachRun) {
  Runner runner(R"(
input %0 "x" : f32[n, 2]
const %1 = inline : f32[2] = 10 20
node "add" : %2 : ?[...] = Add(%0, %1)
const %3 = inline : i64[1] = -1
node "flat" : %4 : ?[...] = Reshape(%2, %3)
output %4
)");
  for (int64_t n : {1, 3, 0, 2, 7}) {
    std::vector<float> x(static_cast<size_t>(2 * n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    std::vector<float> y = runner.run({floats({n, 2}, x)});
    ASSERT_EQ(y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] + (i % 2 ? 20 : 10));
  }
}

TEST(Executor, NoSizeNeedsToBeOpen) {
  Runner runner("input %0 \"x\" : f32[2]\nnode \"\" : %1 : ?[...] = Neg(%0)\noutput %1");
  EXPECT_EQ(runner.run({floats({2}, {1, 2})}), (std::vector<float>{-1, -2}));
  EXPECT_EQ(runner.run({floats({2}, {3, 4})}), (std::vector<float>{-3, -4}));
}

TEST(Executor, WrongInputsAreNamed) {
  Runner runner(
      "input %0 \"left\" : f32[n, 2]\ninput %1 \"right\" : f32[n, 2]\nnode \"\" : %2 : ?[...] = Add(%0, %1)\noutput "
      "%2");
  auto message = [&](const std::vector<Tensor>& inputs) -> std::string {
    try {
      runner.run(inputs);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_NE(message({floats({1, 2}, {1, 2}), floats({2, 2}, {1, 2, 3, 4})}).find("right"), std::string::npos);
  EXPECT_NE(message({floats({1, 3}, {1, 2, 3}), floats({1, 2}, {1, 2})}).find("left"), std::string::npos);
  EXPECT_NE(message({Tensor(DType::i64, {1, 2}), floats({1, 2}, {1, 2})}).find("dtype"), std::string::npos);
  EXPECT_NE(message({floats({1, 2}, {1, 2})}).find("2 inputs"), std::string::npos);
  EXPECT_EQ(runner.run({floats({1, 2}, {1, 2}), floats({1, 2}, {3, 4})}),
            (std::vector<float>{4, 6}));  // still usable
}

/// Where sizes are written differently, only the run can tell whether they fit; either of two may broadcast.
TEST(Executor, SizesOfTwoNamesHaveToFit) {
  for (const std::string node : {"Add(%0, %1)", "MatMul(%0, %1)", "Concat(%0, %1) axis=1", "Where(%2, %0, %1)"}) {
    Runner runner(
        cat("input %0 \"a\" : f32[p, 2, 2]\ninput %1 \"b\" : f32[q, 2, 2]\ninput %2 \"c\" : bool[]\n"
            "node \"n\" : %3 : ?[...] = ",
            node, "\noutput %3"));
    auto ones = [](int64_t rows) {
      return floats({rows, 2, 2}, std::vector<float>(static_cast<size_t>(rows) * 4, 1));
    };
    EXPECT_EQ(runner.refusal({ones(3), ones(3), boolean(true)}), "") << node;
    const std::string of_one = runner.refusal({ones(1), ones(3), boolean(true)});
    EXPECT_EQ(of_one.find("\"n\"") != std::string::npos, node.starts_with("Concat")) << node << of_one;
    EXPECT_NE(runner.refusal({ones(2), ones(3), boolean(true)}).find("\"n\""), std::string::npos) << node;
    EXPECT_EQ(runner.refusal({ones(2), ones(2), boolean(true)}), "") << node;
  }
}

TEST(Executor, ExpandTakesOnesAndWhatIsEqual) {
  Runner runner(R"(
input %0 "a" : f32[p, 2]
input %1 "b" : f32[q, 2]
node "size" : %2 : ?[...] = Shape(%1)
node "n" : %3 : ?[...] = Expand(%0, %2)
output %3
)");
  auto ones = [](int64_t rows) { return floats({rows, 2}, std::vector<float>(static_cast<size_t>(rows) * 2, 1)); };
  EXPECT_EQ(runner.run({ones(1), ones(3)}), std::vector<float>(6, 1));
  EXPECT_EQ(runner.run({ones(3), ones(3)}), std::vector<float>(6, 1));
  EXPECT_NE(runner.refusal({ones(2), ones(3)}).find("\"n\""), std::string::npos);
}

TEST(Executor, ValuesWhoseSizeDependsOnData) {
  Runner runner(R"(
input %0 "x" : f32[n]
node "where" : %1 : ?[...] = NonZero(%0)
const %2 = inline : i64[1] = 0
node "row" : %3 : ?[...] = Squeeze(%1, %2)
node "pick" : %4 : ?[...] = Gather(%0, %3) axis=0
output %4
)");
  EXPECT_EQ(runner.run({floats({5}, {0, 3, 0, 5, 6})}), (std::vector<float>{3, 5, 6}));
  EXPECT_EQ(runner.run({floats({2}, {0, 0})}), std::vector<float>{});
  EXPECT_EQ(runner.run({floats({1}, {9})}), (std::vector<float>{9}));
}

/// Types that are kept from run to run hold only for the same sizes and the same elements that rules read; memory is used again.
TEST(Executor, OpenSizesAreThoseOfEachRun) {
  Runner runner(R"(
input %0 "x" : f32[n]
input %1 "shape" : i64[2]
node "grid" : %2 : ?[...] = Reshape(%0, %1)
node "" : %3 : ?[...] = Exp(%2)
node "" : %4 : ?[...] = Concat(%3, %2) axis=0
output %4
output %3
)");
  auto shaped = [&](int64_t rows, int64_t columns, int64_t n) {
    std::vector<float> zeros(static_cast<size_t>(n));
    const int64_t sizes[] = {rows, columns};
    const std::vector<float> out = runner.run({floats({n}, zeros), Tensor::of<int64_t>(DType::i64, {2}, sizes)});
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i < out.size() / 2 ? 1 : 0) << i;
    return runner.shape(0) + runner.shape(1);
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(shaped(2, 6, 12), "[4, 6][2, 6]");
    EXPECT_EQ(shaped(2, 6, 12), "[4, 6][2, 6]");
    EXPECT_EQ(shaped(3, 4, 12), "[6, 4][3, 4]");
    EXPECT_EQ(shaped(3, -1, 300), "[6, 100][3, 100]");
    EXPECT_EQ(shaped(3, -1, 3), "[6, 1][3, 1]");
  }
  const int64_t wrong[] = {5, 5};
  const Tensor x = floats({12}, std::vector<float>(12)), shape = Tensor::of<int64_t>(DType::i64, {2}, wrong);
  EXPECT_NE(runner.refusal({x, shape}), "");
  EXPECT_NE(runner.refusal({x, shape}), "") << "again";
  EXPECT_EQ(shaped(4, 3, 12), "[8, 3][4, 3]");
}

TEST(Executor, BranchesRunOnlyWhatIsTaken) {
  Runner runner(R"(
input %0 "c" : bool[]
input %1 "x" : f32[n]
node "if" : %2 : ?[...] = If(%0, %1)
body "then_branch" {
  input %0 : f32[n]
  node "" : %1 : ?[...] = Neg(%0)
  output %1
}
body "else_branch" {
  input %0 : f32[n]
  const %2 = inline : f32[1] = 100
  node "" : %1 : ?[...] = Add(%0, %2)
  output %1
}
output %2
)");
  Tensor on = boolean(true), off = boolean(false);
  EXPECT_EQ(runner.run({on, floats({2}, {1, 2})}), (std::vector<float>{-1, -2}));
  EXPECT_EQ(runner.run({off, floats({3}, {1, 2, 3})}), (std::vector<float>{101, 102, 103}));
  EXPECT_EQ(runner.run({on, floats({1}, {4})}), (std::vector<float>{-4}));
}

TEST(Executor, AnIndexOutOfRangeNamesTheNode) {
  Runner runner(
      "input %0 \"i\" : i64[n]\nconst %1 = inline : f32[3] = 1 2 3\nnode \"lookup\" : %2 : ?[...] = Gather(%1, %0) "
      "axis=0\noutput %2");
  std::vector<int64_t> bad{1, 7};
  try {
    runner.run({Tensor::of<int64_t>(DType::i64, {2}, bad)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("lookup"), std::string::npos);
    EXPECT_NE(error.message().find("7"), std::string::npos);
  }
}

TEST(Fold, ComputesConstantsUnderABudget) {
  // 2^40 elements out of a few bytes: left for the run, which refuses it by its size.
  Graph graph = parse_graph(
      "const %0 = inline : i64[1] = 1099511627776\nnode \"giant\" : %1 : ?[...] = ConstantOfShape(%0)\noutput %1");
  PlainModel model = compile_plain(std::move(graph), World::get().options());
  EXPECT_EQ(model.program->instructions.size(), 1u);
  Graph small = parse_graph("const %0 = inline : f32[2] = 1 2\nnode \"\" : %1 : ?[...] = Exp(%0)\noutput %1");
  EXPECT_TRUE(compile_plain(std::move(small), World::get().options()).program->instructions.empty());
}

TEST(Fold, OutputsKeepTheirNames) {
  // Of a value that has a name, of an input, of another output; and through an If that is decided.
  Runner runner(R"(
input %0 "x" : f32[s]
node "" : %1 "inner" : ?[...] = Neg(%0)
node "" : %2 "a" : ?[...] = Identity(%1)
node "" : %3 "b" : ?[...] = Identity(%1)
node "" : %4 "c" : ?[...] = Identity(%0)
const %5 = inline : bool[] = 1
node "" : %6 "d" : ?[...] , %7 "e" : ?[...] = If(%5, %0, %1)
body "then_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  node "" : %2 : ?[...] = Exp(%1)
  node "" : %3 : ?[...] = Identity(%1)
  output %2
  output %3
}
body "else_branch" {
  input %0 : ?[...]
  input %1 : ?[...]
  output %0
  output %0
}
node "" : %8 "other" : ?[...] = Exp(%0)
node "" : %9 "f" : ?[...] = If(%5, %8)
body "then_branch" {
  input %0 : ?[...]
  node "" : %1 : ?[...] = Identity(%0)
  output %1
}
body "else_branch" {
  input %0 : ?[...]
  output %0
}
output %9
output %2
output %3
output %4
output %6
output %7
)");
  EXPECT_EQ(runner.model.program->output_names, (std::vector<std::string>{"f", "a", "b", "c", "d", "e"}));
  EXPECT_EQ(runner.model.program->input_names, (std::vector<std::string>{"x"}));
  std::vector<Tensor> zero{floats({1}, {0})};  // one output shows the input's own memory
  EXPECT_EQ(runner.run(zero), (std::vector<float>{1}));
  for (int k = 1; k < 6; ++k) EXPECT_EQ(runner.values(k), (std::vector<float>{k == 4 ? 1.0f : 0.0f})) << k;
}

TEST(Compile, AProgramHasAFingerprint) {
  std::string once = compile_plain(fixture_graph("llama-standard23"), World::get().options()).program->fingerprint;
  EXPECT_EQ(once, compile_plain(fixture_graph("llama-standard23"), World::get().options()).program->fingerprint);
  EXPECT_NE(once, compile_plain(fixture_graph("gpt2-optimum18"), World::get().options()).program->fingerprint);
}

std::string fingerprint_of(const std::string& source) {
  return compile_plain(parse_graph(source), World::get().options()).program->fingerprint;
}

/// Whatever a program means is in its fingerprint: attributes of every kind, in bodies as well, what was computed, and how
/// weights are made from the file.
TEST(Compile, ProgramsThatMeanOtherThingsHaveOtherFingerprints) {
  const std::string source = R"(
input %0 "x" : f32[s, 4]
input %1 "c" : bool[]
const %2 = inline : f32[1] = 0.5
const %3 "w" = file "w" : f32[4, 4] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
node "" : %4 : ?[...] = LeakyRelu(%0) alpha=0.1
node "" : %5 : ?[...] = MatMul(%4, %3)
node "" : %6 : ?[...] = Mul(%5, %2)
node "" : %7 : ?[...] = If(%1, %6)
body "then_branch" {
  input %0 : ?[...]
  node "" : %1 : ?[...] = Elu(%0) alpha=0.2
  output %1
}
body "else_branch" {
  input %0 : ?[...]
  output %0
}
node "" : %8 : ?[...] = Gelu(%7) approximate="tanh"
node "" : %9 : ?[...] = ReduceSum(%8) keepdims=1
output %9
)";
  const std::pair<std::string, std::string> edits[] = {
      {"alpha=0.1", "alpha=0.10000001"}, {"alpha=0.2", "alpha=0.3"}, {"approximate=\"tanh\"", "approximate=\"none\""},
      {"keepdims=1", "keepdims=0"},      {" = 0.5", " = 0.25"},      {"15 16", "15 16 ; transpose 1 0"},
      {"file \"w\"", "file \"v\""},      {"LeakyRelu", "Elu"},       {"output %9", "output %8"}};
  std::set<std::string> all{fingerprint_of(source)};
  EXPECT_TRUE(all.count(fingerprint_of(source))) << "compiled once more";
  for (const auto& [from, to] : edits) {
    std::string other = source;
    ASSERT_NE(other.find(from), std::string::npos) << from;
    other.replace(other.find(from), from.size(), to);
    EXPECT_TRUE(all.insert(fingerprint_of(other)).second) << from << " -> " << to;
    EXPECT_EQ(all.count(fingerprint_of(other)), 1u);
  }
}

}  // namespace
}  // namespace plait::test
