// What a run may use: memory that the host's data asks for, and time.
#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "tests/unit/exec/runner.h"

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

TEST(MemoryBudget, CancelEndsALongNode) {
  auto budget = std::make_shared<MemoryBudget>();
  Runner runner(R"(
input %0 "a" : f32[6000,6000]
input %1 "b" : f32[6000,6000]
node "product" : %2 : f32[6000,6000] = MatMul(%0, %1)
output %2
)",
                budget);
  const Tensor a(DType::f32, {6000, 6000}), b(DType::f32, {6000, 6000});
  // In the time of its processors: other processes do not count.
  std::atomic<std::clock_t> cancelled{};
  std::thread other([&] {
    while (budget->used() == 0) std::this_thread::yield();  // it has begun
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled = std::clock();
    budget->cancel();
  });
  const Code code = code_of(runner, {a, b});
  const std::clock_t ended = std::clock();
  other.join();
  EXPECT_EQ(code, Code::cancelled);
  EXPECT_LT(static_cast<double>(ended - cancelled) / CLOCKS_PER_SEC, 1) << "the product takes 2 s and more";
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
