#pragma once
// Sums of more than two in a graph: Adds that are made together, in whichever order costs least.
#include <vector>

#include "core/graph/graph.h"

namespace plait {

/// An Add whose only reader is another Add of the same sizes belongs to that one's sum. Refers to the graph, whose nodes stay
/// as they are.
class Sums {
 public:
  explicit Sums(const Graph& graph);

  /// Whether a node is made together with the Add that reads it.
  bool is_within(size_t node) const { return within_[node]; }
  /// Whether a node is an Add of another Add's result that is within its sum.
  bool is_sum(size_t node) const;
  /// The Add within a sum that makes a value; -1 if something else does.
  int32_t inner(ValueId id) const;
  /// What a sum adds up, in the graph's order.
  std::vector<ValueId> summands(size_t sum) const;

 private:
  const Graph& graph_;
  const std::vector<int32_t> producer_;
  std::vector<bool> within_;  ///< by node
};

}  // namespace plait
