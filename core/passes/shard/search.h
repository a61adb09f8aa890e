#pragma once
// Seeds without a recipe: coordinate descent over kinds of weights, priced by pass `shard` itself.
#include "core/passes/shard/price.h"

namespace plait {

struct FoundSeeds {
  ShardSeeds seeds;
  double seconds = 0;        ///< what the plan costs, by `price_of`
  int64_t plans = 0;         ///< that were priced
  bool from_nothing = true;  ///< no recipe was cheaper than what was found without
};

/// Weights that stand at the same place in layers of one kind are cut alike. One kind after the other takes the cheapest of the
/// ways to cut it along the mesh's axis `tensor`, until none gets cheaper; what has no seed follows its neighbours, so that
/// few have to be found. The descent begins with nothing but `given`, which stays; should a recipe be cheaper than its end,
/// with that once more. The graph's symbols say how large the step is for which places are chosen.
FoundSeeds search_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& given = {},
                        const LinkPrices& prices = {});

}  // namespace plait
