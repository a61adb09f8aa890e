#pragma once
// Sharded values as nodes and constants of the graph of ranks.
#include "core/passes/base/shard_plan.h"

namespace plait {

/// Throws Error(invalid_argument) for a seed of a value other than a constant, State or input, and for one that does
/// not fit its value's dims.
void check_seeds(const Graph& graph, const ShardSeeds& seeds, const Mesh& mesh);

/// The node of one redistribution step; without operands.
Node collective_node(const Collective& step, const Mesh& mesh);

/// A rank's shard of a constant.
Constant part_of(const Constant& whole, const Sharding& place, const Mesh& mesh);

}  // namespace plait
