#pragma once
// Sharded equals whole, for one node and every placement that its dims rule allows: the test that needs no list of
// ops.
#include <map>
#include <string>
#include <vector>

#include "core/mesh/placement.h"
#include "tests/unit/support/models.h"
#include "tests/unit/support/sharded.h"

namespace plait::test {

/// How much of what a rule allows was tried, and which of its factors were cut in any placement.
struct Tried {
  int placements = 0;  ///< that cut something
  int passes = 0;      ///< ways for a sum that an operand owes to stay unpaid after the node
  std::set<std::string> factors;
  void add(Tried other) {
    placements += other.placements;
    passes += other.passes;
    factors.merge(other.factors);
  }
};

/// "Add | 12 placements | 5 sums pass", a line each.
std::string counts_text(const std::map<std::string, Tried>& tried);

/// Runs a node on whole operands and, for every placement of its rule on the mesh, on the shards of each rank, with
/// the kernels that the table prefers; what the ranks make, put together, must be what the node makes whole, to
/// `slack` of the largest element. The same with operands that owe a sum, wherever the rule lets it pass. Returns
/// what was tried, by way of EXPECT what was wrong: `wrong` counts it instead, if it is given. `rule` stands for the
/// schema's own, expanded.
Tried expect_sharded_equals_whole(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands,
                                  const Mesh& mesh, double slack, int* wrong = nullptr,
                                  const DimsRule* rule = nullptr);

/// The rule of a node on such operands; nullopt where it has none.
std::optional<DimsRule> rule_on(const KernelTable& kernels, const Node& node, const std::vector<Tensor>& operands);

}  // namespace plait::test
