// Names what this machine tests: a suite unit.cpu_SET for each instruction set, which ctest lists as skipped where the set is left out.
#include <gtest/gtest.h>

#include "tests/unit/support/isas.h"

namespace plait::test {
namespace {

class InstructionSet : public testing::TestWithParam<std::string> {};

TEST_P(InstructionSet, IsTested) {
  if (!has_isa(GetParam())) GTEST_SKIP() << "NOT RUN: " << why_left_out(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Each, InstructionSet, testing::ValuesIn(all_isas), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plait::test
