// Ops beyond the standard's on every mesh that their dims rules allow, with sizes that divide in many ways.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/support/golden.h"
#include "tests/unit/nodes/cases.h"
#include "tests/unit/nodes/instances.h"
#include "tests/unit/nodes/mutations.h"

namespace plait::test {
namespace {

const std::vector<const char*> meshes{"tensor=2", "data=2,tensor=2", "tensor=3", "tensor=8"};
constexpr double slack = 2e-5;

/// Those of Plait and of com.microsoft.
std::vector<Instance> all_instances() {
  std::vector<Instance> out = plait_instances();
  out.insert(out.end(), microsoft_instances().begin(), microsoft_instances().end());
  return out;
}

class EachPlaitOp : public testing::TestWithParam<Instance> {};

TEST_P(EachPlaitOp, EqualTheWhole) {
  const Instance& instance = GetParam();
  const Made made = make(instance);
  for (const KernelTable* kernels : {&reference_options().kernels, &World::get().kernels}) {
    Tried tried;
    for (const char* mesh : meshes)
      tried.add(expect_sharded_equals_whole(*kernels, made.node, made.operands, Mesh::parse(mesh), slack));
    EXPECT_GT(tried.placements, 2);
    for (const std::string& factor : instance.cut)
      EXPECT_TRUE(tried.factors.contains(factor)) << factor << " was never cut";
  }
}

INSTANTIATE_TEST_SUITE_P(Sharded, EachPlaitOp, testing::ValuesIn(all_instances()),
                         [](const auto& info) { return info.param.name; });

TEST(PlaitOps, OfMicrosoftHaveInstances) {
  for (const auto& [name, row] : World::get().ops.all()) {
    if (!name.starts_with("com.microsoft.") || row.dims.empty() || !row.written_as.empty()) continue;
    const std::vector<Instance> all = all_instances();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&op = name](const Instance& one) { return one.op == op; })) << name;
  }
}

TEST(PlaitOps, AllowWhatTheyDid) {
  std::map<std::string, Tried> tried;
  for (const Instance& instance : all_instances()) {
    const Made made = make(instance);
    for (const char* mesh : meshes)
      tried[instance.name].add(
          expect_sharded_equals_whole(World::get().kernels, made.node, made.operands, Mesh::parse(mesh), slack));
  }
  expect_golden("tests/unit/nodes/goldens/plait_placements.golden", counts_text(tried), "unit.nodes");
}

TEST(PlaitOps, NoticeWhatARuleLacks) {
  Mutants mutants;
  for (const Instance& instance : all_instances()) {
    const Made made = make(instance);
    mutants.run(World::get().kernels, made.node, made.operands, {"tensor=2", "tensor=3"}, slack);
  }
  expect_golden("tests/unit/nodes/goldens/plait_survivors.golden", mutants.survivors(), "unit.nodes");
}

}  // namespace
}  // namespace plait::test
