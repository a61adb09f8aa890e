#pragma once
// Sums of more than two values: Adds that are placed together, in the cheapest order.
#include <map>
#include <vector>

#include "core/mesh/placement.h"

namespace plait {

/// Groups Adds: one whose only reader is another Add of the same sizes belongs to that sum. Refers to the graph,
/// whose nodes must not change.
class Sums {
 public:
  explicit Sums(const Graph& graph);

  /// Whether a node is placed together with the Add that reads it.
  bool is_within(size_t node) const { return within_[node]; }
  /// Whether a node is an Add of another Add's result that is within its sum.
  bool is_sum(size_t node) const;
  /// The Add within a sum that makes a value; -1 if another op does.
  int32_t inner(ValueId id) const;
  /// Operands of a sum, in the graph's order.
  std::vector<ValueId> summands(size_t sum) const;

 private:
  const Graph& graph_;
  const std::vector<int32_t> producer_;
  std::vector<bool> within_;  ///< by node
};

/// By summand, the State that accumulates it: it is best computed with the State's sharding, and so are its own summands.
std::map<ValueId, ValueId> accumulators(const Graph& graph, const OpSet& ops, const NodeRules& rules);

}  // namespace plait
