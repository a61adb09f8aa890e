// Every op on every mesh that its dims rule allows: the standard's own cases, cut, run on each rank's shards, and put
// together. A rule that allows too much, or forgets that something is pending, fails here; one that allows less than it
// did changes the counts in goldens/. What of a rule could be dropped, and no case would notice, is listed there, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/support/golden.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/mutations.h"

namespace plait::test {
namespace {

/// Sums are added in another order: f16 and bf16 are rounded each time.
double slack_of(const std::vector<Tensor>& operands) {
  double slack = 1e-5;
  for (const Tensor& tensor : operands)
    if (tensor.dtype() == DType::f16 || tensor.dtype() == DType::bf16) slack = 2e-2;
  return slack;
}

TEST(Sharded, StandardsCasesEqualTheWhole) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  std::map<std::string, Tried> tried;
  each_node(World::get().options(),
            [&](const std::string& name, const Node& node, const std::vector<Tensor>& operands) {
              SCOPED_TRACE(name);
              for (const char* mesh : {"tensor=2", "tensor=4", "tensor=3"})
                tried[node.op].add(expect_sharded_equals_whole(World::get().kernels, node, operands,
                                                               Mesh::parse(mesh), slack_of(operands)));
            });
  expect_golden("tests/unit/nodes/goldens/standard_placements.golden", counts_text(tried), "unit.nodes");
  EXPECT_GT(std::count_if(tried.begin(), tried.end(), [](const auto& one) { return one.second.placements > 0; }), 90);
}

TEST(Sharded, StandardsCasesNoticeWhatARuleLacks) {
  if (case_names().empty()) GTEST_SKIP() << "NOT RUN: no node tests";
  Mutants mutants;
  each_node(
      World::get().options(), [&](const std::string& name, const Node& node, const std::vector<Tensor>& operands) {
        SCOPED_TRACE(name);
        mutants.run(World::get().kernels, node, operands, {"tensor=2", "tensor=3", "tensor=5"}, slack_of(operands));
      });
  expect_golden("tests/unit/nodes/goldens/standard_survivors.golden", mutants.survivors(), "unit.nodes");
}

}  // namespace
}  // namespace plait::test
