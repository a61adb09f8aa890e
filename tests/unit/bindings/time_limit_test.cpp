// The time limit of runs: what takes too long is cancelled, and nothing else.
#include "bindings/c/time_limit.h"
#include "tests/unit/support/machine_load.h"

#include <gtest/gtest.h>

namespace plait::c_api::test {
namespace {

TEST(TimeLimit, CancelsTheRunUnderWay) {
  const auto budget = std::make_shared<MemoryBudget>();
  TimeLimit limit(0.02, budget);
  for (int i = 0; i < 3; ++i) {
    budget->begin();
    const auto start = std::chrono::steady_clock::now();
    limit.begin();
    while (!budget->cancelled()) std::this_thread::yield();
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
    EXPECT_TRUE(limit.end());
  }
}

TEST(TimeLimit, EndsNoOtherRun) {
  const auto budget = std::make_shared<MemoryBudget>();
  {
    const double limit_s = 0.1 * plait::test::machine_load();  // the thread may not be given a processor between two calls
    TimeLimit limit(limit_s, budget);
    for (int i = 0; i < 3; ++i) {
      budget->begin();
      limit.begin();
      EXPECT_FALSE(limit.end());
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * limit_s));
      EXPECT_FALSE(budget->cancelled());
    }
    budget->begin();
    limit.begin();
    budget->cancel();  // by the host
    EXPECT_FALSE(limit.end());
  }
  EXPECT_NO_THROW(TimeLimit(1e8, budget));
}

}  // namespace
}  // namespace plait::c_api::test
