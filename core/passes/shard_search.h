#pragma once
// Seeds without a recipe: coordinate descent over kinds of weights, priced by pass `shard` itself.
#include "core/passes/shard.h"

namespace plait {

/// What a step of generation costs a rank, in seconds. Decoding reads every weight that the rank holds, and the cache, once;
/// and it waits for what the ranks say to each other. So a weight that is held whole costs its bytes on every rank, looked-up
/// tables included: for these the price stands for the memory that they take. Arithmetic is not priced: where few tokens
/// are computed it hides behind the reading.
struct LinkPrices {
  double memory = 20e9;    ///< bytes a second that a rank reads: its share of a machine's memory
  double link = 5e9;       ///< bytes a second that a rank sends
  double latency = 10e-6;  ///< seconds that a collective takes with nothing in it
  int64_t context = 1024;  ///< tokens in the cache
};

struct SeedPrice {
  double weight_bytes = 0;  ///< held by a rank
  double cache_bytes = 0;   ///< of a token, held by a rank
  double moved_bytes = 0;   ///< sent by a rank in a step of the typical size
  int64_t collectives = 0;
  double seconds(const LinkPrices& prices) const {
    return (weight_bytes + cache_bytes * static_cast<double>(prices.context)) / prices.memory +
           moved_bytes / prices.link + static_cast<double>(collectives) * prices.latency;
  }
};
SeedPrice price_of(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& seeds);

struct FoundSeeds {
  ShardSeeds seeds;
  double seconds = 0;
  int64_t priced = 0;  ///< how many plans were
};

/// Weights that play one role in layers of one kind are cut alike. One kind after the other takes, of all ways to cut its
/// dims by parts of the axis `tensor`, the cheapest, until none gets cheaper: from nothing cut, and from what the recipes
/// say; the cheapest end is the answer. `given` stays. The graph's symbols say what a step's typical size is.
FoundSeeds search_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& given = {},
                        const LinkPrices& prices = {});

}  // namespace plait
