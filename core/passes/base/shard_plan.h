#pragma once
// Results of sharding that later passes and reports read: where values live, and the collectives of one run.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/mesh/placement.h"

namespace plait {

/// Requested shardings of constants, States and inputs, by value. A State without an entry gets the sharding of its first use.
using ShardSeeds = std::map<ValueId, Sharding>;

/// What the ranks say to each other in one run, at the symbols' typical sizes.
struct PlannedCollective {
  Collective step;
  std::string what;  ///< the value that is moved: its name, or the node that makes it
  std::string for_node;
  double bytes = 0;   ///< that each rank sends
  Type held;          ///< by each rank before it
  int32_t node = -1;  ///< of the global graph, that makes what is moved; -1: none, it is an input
};

/// A node that might have been placed in several ways.
struct PlannedChoice {
  struct Candidate {
    FactorAxes cut;
    int displaced = 0;  ///< weights that would be elsewhere than their seeds say
    double bytes = 0;   ///< moved for its operands, and to pay what its results owe
    int owed = 0;       ///< axes along which its results owe a sum: what is paid before, others may read too
    bool chosen = false;
  };
  int32_t node = -1;  ///< of the global graph
  std::vector<Candidate> candidates;
};

struct ShardPlan {
  std::vector<PlannedCollective> collectives;
  std::map<ValueId, Sharding> weights;                  ///< as they are first used, by value of the global graph
  std::vector<std::pair<ValueId, Sharding>> copies;     ///< weights that are held once more, in another way
  std::map<std::string, Sharding, std::less<>> states;  ///< by key of the Store
  std::vector<PlannedChoice> choices;
  std::vector<std::string> unruled;  ///< nodes whose op has no rule: they get whole operands
  bool paid_early = false;           ///< a sum was paid where it might have passed, for that was cheaper
  double bytes() const {
    double out = 0;
    for (const PlannedCollective& one : collectives) out += one.bytes;
    return out;
  }
};

}  // namespace plait
