#pragma once
// Pass shard: one global graph, annotated with where its weights live, becomes the graph of one rank, with collectives.
//
// Nothing here knows an op: what a node may do is what its dims rule says. Nodes are taken in order; each is placed where
// moving its operands there, and paying what its result owes, moves the fewest bytes; operands are moved once for each
// place. Weights stay where the seeds say. After Shardy and GSPMD (Xu et al. 2021) in propagating from annotations, with
// partial sums as a state of values (OneFlow, Yuan et al. 2021).
#include <map>
#include <string>
#include <vector>

#include "core/graph/schema.h"
#include "core/mesh/placement.h"

namespace plait {

/// Where constants are to live, by value.
using ShardSeeds = std::map<ValueId, Sharding>;

enum class Recipe {
  tensor,  ///< as Megatron does (Shoeybi et al. 2019): heads, hidden features, the vocabulary
  expert,  ///< experts stacked in one weight; all else as `tensor`
};

/// Cuts every weight by `axes` along a dim that no op needs whole: sizes that are one and the same (a feed-forward layer's
/// hidden features in the three weights that have them, the heads of queries, keys and values) are found by following the
/// dims rules through the graph, and are cut alike, as far as they divide. What divides in no way stays whole.
ShardSeeds recipe_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const AxisId> axes,
                        Recipe recipe = Recipe::tensor);

/// What a user's texts ask for; none of them: the recipe of the mesh's axis `tensor`. Throws Error(invalid_argument)
/// for what they do not say clearly, and for what cuts nothing.
ShardSeeds seeds_of(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const std::string> texts);

/// What the ranks say to each other in one run, at the symbols' typical sizes.
struct PlannedCollective {
  Collective step;
  std::string what;  ///< the value that is moved: its name, or the node that makes it
  std::string for_node;
  double bytes = 0;  ///< that each rank sends
};

struct ShardPlan {
  std::vector<PlannedCollective> collectives;
  std::map<ValueId, Sharding> weights;  ///< as they are used, by value of the global graph
  std::map<std::string, Sharding, std::less<>> states;  ///< by key of the Store
  std::vector<std::string> unruled;     ///< nodes whose op has no rule: they get whole operands
  double bytes() const {
    double out = 0;
    for (const PlannedCollective& one : collectives) out += one.bytes;
    return out;
  }
};

/// Rewrites the graph into what rank `rank` runs. Inputs and outputs are whole on every rank. The plan is the same on
/// every rank. Graphs must be inferred. Throws Error(invalid_argument) for seeds that do not fit their constants.
ShardPlan shard(Graph& graph, const OpSet& ops, const Mesh& mesh, int64_t rank, const ShardSeeds& seeds);

}  // namespace plait
