#pragma once
// Results of sharding that later passes and reports read: shardings of values, and the collectives of one run.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/mesh/placement.h"

namespace plait {

/// Requested shardings of constants, States and inputs, by value. A State without an entry gets the sharding of its first use.
using ShardSeeds = std::map<ValueId, Sharding>;

/// One collective of a run, at the symbols' typical sizes.
struct PlannedCollective {
  Collective step;
  std::string what;  ///< the value that is moved: its name, or its node's
  std::string for_node;
  double bytes = 0;   ///< sent by each rank
  Type held;          ///< by each rank before the collective
  int32_t node = -1;  ///< index of the node in the global graph that makes the moved value; -1: it is an input
};

/// A node with several possible placements.
struct PlannedChoice {
  struct Candidate {
    FactorAxes cut;
    int displaced = 0;  ///< weights that are not sharded as their seeds request
    double bytes = 0;   ///< moved for its operands, and to reduce its partial results
    int owed = 0;       ///< axes of its partial sums: operands reduced before may serve other readers too
    bool chosen = false;
  };
  int32_t node = -1;  ///< index in the global graph
  std::vector<Candidate> candidates;
};

struct ShardPlan {
  std::vector<PlannedCollective> collectives;
  std::map<ValueId, Sharding> weights;                  ///< as first used, by value of the global graph
  std::vector<std::pair<ValueId, Sharding>> copies;     ///< further copies of weights with another sharding
  std::map<std::string, Sharding, std::less<>> states;  ///< by key of the Store
  std::vector<PlannedChoice> choices;
  std::vector<std::string> unruled;  ///< nodes whose op has no rule: they get replicated operands
  bool paid_early = false;           ///< a sum was reduced early, as that was cheaper
  double bytes() const {
    double out = 0;
    for (const PlannedCollective& one : collectives) out += one.bytes;
    return out;
  }
};

}  // namespace plait
