// What the tests of this program amount to together.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

/// After all tests, if all of them ran in this process.
class Cases : public testing::Environment {
 public:
  void TearDown() override {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    if (all.test_to_run_count() + all.disabled_test_count() != all.total_test_count()) return;
    int64_t in_all_orders = 0;
    std::set<std::string> ops;
    for (const auto& [one, seen] : passed_cases()) {
      if (seen.size() != std::size(orders)) continue;
      ++in_all_orders;
      ops.insert(one.first);
    }
    EXPECT_EQ(std::size(orders), 3U);
    EXPECT_GE(in_all_orders, 500) << "kernels are compared with the reference in at least 500 cases";
    for (const std::unique_ptr<Kernel>& kernel : kernels().all())
      if (kernel->device == DeviceKind::cuda) {
        EXPECT_TRUE(ops.contains(kernel->op)) << "no case compares " << kernel->op << " with the reference";
      }
    testing::Test::RecordProperty("cases", cat(in_all_orders));
  }
};

[[maybe_unused]] testing::Environment* const cases = testing::AddGlobalTestEnvironment(new Cases);

}  // namespace
}  // namespace plait::test
