#pragma once
// Sharded values as nodes and constants of one rank's graph.
#include "core/passes/base/shard_plan.h"

namespace plait {

/// Throws Error(invalid_argument) for a seed of a value other than a constant, State or input, and for one that does
/// not fit its value's dims.
void check_seeds(const Graph& graph, const ShardSeeds& seeds, const Mesh& mesh);

/// The node of one redistribution step on rank `rank`; without operands.
Node collective_node(const Collective& step, const Mesh& mesh, int64_t rank);

/// The rank's shard of a constant of these dims.
Constant part_of(const Constant& whole, const Dims& dims, const Sharding& place, const Mesh& mesh, int64_t rank);

}  // namespace plait
