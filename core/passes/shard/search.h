#pragma once
// Finds seeds without a recipe: coordinate descent over kinds of weights, priced by pass `shard`.
#include "core/passes/shard/price.h"

namespace plait {

struct FoundSeeds {
  ShardSeeds seeds;
  double seconds = 0;        ///< cost of the plan, by `price_of`
  int64_t plans = 0;         ///< plans priced
  bool from_nothing = true;  ///< no recipe was cheaper than the result of the search
};

/// Corresponding weights in layers of one kind are sharded alike. Each kind in turn takes its cheapest sharding along
/// the mesh's axis `tensor`, until none improves; weights without a seed follow their neighbours, so few have to be
/// found. The descent begins with only `given`, which is fixed; if a recipe is cheaper than the result, it is
/// repeated from there. The graph's symbols specify the step size to optimise for.
FoundSeeds search_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& given = {},
                        const LinkPrices& prices = {});

}  // namespace plait
