#pragma once
// Sharded equals whole, for one node and every placement that its dims rule allows: the test that needs no list of ops.
#include <map>
#include <string>
#include <vector>

#include "core/mesh/placement.h"
#include "tests/unit/models.h"
#include "tests/unit/sharded.h"

namespace plait::test {

/// How many placements of an op were tried, and which of its factors were cut in any.
struct Tried {
  int placements = 0;
  std::set<std::string> factors;
};

/// Runs a node on whole operands and, for every placement of its rule on the mesh that cuts anything, on the shards of each
/// rank, with the kernels that the table prefers; what the ranks make, put together, must be what the node
/// makes whole, to `slack` of the largest element. `rule` replaces the schema's text where it is not empty. Returns what
/// was tried, by way of EXPECT what was wrong: `wrong` counts placements that differ instead, if it is given.
Tried expect_sharded_equals_whole(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
                                  const Mesh& mesh, double slack, int* wrong = nullptr, const std::string& rule = {});

}  // namespace plait::test
