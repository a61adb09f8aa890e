// What a run may use: memory that the host's data asks for, and time.
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "core/base/text.h"
#include "tests/unit/exec/runner.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

constexpr int64_t megabyte = 1 << 20;

Code code_of(Runner& runner, const std::vector<Tensor>& inputs) {
  try {
    runner.run(inputs);
  } catch (const Error& error) {
    return error.code();
  }
  return Code::ok;
}

TEST(MemoryBudget, SizesThatDataAsksForAreRefusedByName) {
  Runner runner(R"(
input %0 "limit" : i64[]
const %1 = inline : i64[] = 0
const %2 = inline : i64[] = 1
node "numbers" : %3 : ?[...] = Range(%1, %0, %2)
node "floats" : %4 : ?[...] = Cast(%3) to=1
output %4
)",
                std::make_shared<MemoryBudget>(megabyte));
  for (int64_t limit : {int64_t{1} << 18, int64_t{1} << 40, int64_t{1} << 50}) {
    EXPECT_EQ(code_of(runner, {integer(limit)}), Code::out_of_memory) << limit;
    EXPECT_NE(runner.refusal({integer(limit)}).find("numbers"), std::string::npos);
    EXPECT_EQ(runner.run({integer(3)}), (std::vector<float>{0, 1, 2}));  // nothing is lost
  }
}

TEST(MemoryBudget, SizesThatInputsAskForAreRefused) {
  Runner runner("input %0 \"x\" : f32[n]\nnode \"negative\" : %1 : f32[n] = Neg(%0)\noutput %1\n",
                std::make_shared<MemoryBudget>(megabyte));
  EXPECT_EQ(code_of(runner, {Tensor(DType::f32, Shape{megabyte})}), Code::out_of_memory);
  EXPECT_EQ(runner.run({floats({2}, {1, 2})}), (std::vector<float>{-1, -2}));
}

TEST(MemoryBudget, MemoryComesBack) {
  auto budget = std::make_shared<MemoryBudget>(megabyte);
  const std::shared_ptr<Device> device = default_device();
  {
    auto first = budget->take(megabyte - 100, *device);
    EXPECT_THROW(budget->take(200, *device), Error);
    EXPECT_EQ(budget->used(), megabyte - 100);
  }
  EXPECT_EQ(budget->used(), 0);
  std::shared_ptr<Blob> last = budget->take(10, *device);
  budget.reset();  // what is held outlives the executor
  EXPECT_EQ(last->size(), 10);
}

const char* const endless = R"(
input %0 "trips" : i64[]
input %1 "x" : f32[1]
const %2 = inline : bool[] = 1
node "turns" : %3 : f32[1] = Loop(%0, %2, %1) carried=1
body "body" {
  input %0 "i" : i64[]
  input %1 "more" : bool[]
  input %2 "in" : f32[1]
  node "" : %3 : f32[1] = Neg(%2)
  output %1
  output %3
}
output %3
)";

TEST(MemoryBudget, CancelEndsALoop) {
  auto budget = std::make_shared<MemoryBudget>();
  Runner runner(endless, budget);
  Code code = Code::ok;
  std::thread run([&] { code = code_of(runner, {integer(INT64_MAX), floats({1}, {1})}); });
  while (budget->used() == 0) std::this_thread::yield();  // it has begun
  budget->cancel();
  run.join();
  EXPECT_EQ(code, Code::cancelled);
  budget->begin();
  EXPECT_EQ(runner.run({integer(3), floats({1}, {1})}), std::vector<float>{-1});
}

/// Cancels a run a while after it began, and expects that it ends within a second.
void expect_cancelled(Runner& runner, const std::shared_ptr<MemoryBudget>& budget, const std::vector<Tensor>& inputs) {
  // In the time of its processors: other processes do not count.
  std::atomic<std::clock_t> cancelled{};
  std::thread other([&] {
    while (budget->used() == 0) std::this_thread::yield();  // it has begun
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled = std::clock();
    budget->cancel();
  });
  const Code code = code_of(runner, inputs);
  const std::clock_t ended = std::clock();
  other.join();
  EXPECT_EQ(code, Code::cancelled);
  EXPECT_LT(static_cast<double>(ended - cancelled) / CLOCKS_PER_SEC, machine_load());
}

/// Takes 2 s and more.
TEST(MemoryBudget, CancelEndsALongNode) {
  auto budget = std::make_shared<MemoryBudget>();
  Runner runner(R"(
input %0 "a" : f32[6000,6000]
input %1 "b" : f32[6000,6000]
node "product" : %2 : f32[6000,6000] = MatMul(%0, %1)
output %2
)",
                budget);
  expect_cancelled(runner, budget, {Tensor(DType::f32, {6000, 6000}), Tensor(DType::f32, {6000, 6000})});
}

/// Takes minutes, by each of the kernels: of a weight, of an input, and of another type.
TEST(MemoryBudget, CancelEndsAConvolutionOfAbsurdSize) {
  struct Case {
    DType dtype;
    int64_t size, kernel, made;
    bool constant;
  };
  for (const Case& n : {Case{DType::f32, 1500, 300, 32, true}, Case{DType::f32, 2000, 600, 1, false},
                        Case{DType::f64, 1500, 300, 1, false}})
    for (int threads : {1, 2}) {
      SCOPED_TRACE(cat("kernel of ", n.kernel, ", ", threads, " threads"));
      Graph graph;
      const Tensor x(n.dtype, {1, 1, n.size, n.size}), w(n.dtype, {n.made, 1, n.kernel, n.kernel});
      auto input = [&](const char* name, const Tensor& tensor) {
        const Shape& shape = tensor.shape();
        graph.inputs.push_back(graph.add_value(name, {n.dtype, Dims(shape.begin(), shape.end())}));
        return graph.inputs.back();
      };
      std::vector<Tensor> inputs{x};
      const ValueId from = input("x", x), by = n.constant ? graph.add_constant(w) : input("w", w);
      if (!n.constant) inputs.push_back(w);
      graph.outputs = graph.add_node("Conv", {from, by}).outputs;
      auto budget = std::make_shared<MemoryBudget>();
      Runner runner(std::move(graph), budget, threads);
      expect_cancelled(runner, budget, inputs);
    }
}

TEST(MemoryBudget, StacksOfALoopCount) {
  Runner runner(R"(
input %0 "trips" : i64[]
input %1 "x" : f32[1024]
const %2 = inline : bool[] = 1
node "turns" : %3 : ?[...] = Loop(%0, %2, %1) carried=0
body "body" {
  input %0 "i" : i64[]
  input %1 "more" : bool[]
  input %2 "in" : f32[1024]
  node "" : %3 : f32[1024] = Neg(%2)
  output %1
  output %3
}
output %3
)",
                std::make_shared<MemoryBudget>(megabyte));
  EXPECT_EQ(code_of(runner, {integer(INT64_MAX), Tensor(DType::f32, Shape{1024})}), Code::out_of_memory);
  EXPECT_EQ(runner.run({integer(2), Tensor(DType::f32, Shape{1024})}).size(), 2048u);
}

}  // namespace
}  // namespace plait::test
