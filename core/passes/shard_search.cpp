#include "core/passes/shard_search.h"
namespace plait {
SeedPrice price_of(const Graph&, const OpSet&, const Mesh&, const ShardSeeds&) { return {}; }
FoundSeeds search_seeds(const Graph&, const OpSet&, const Mesh&, const ShardSeeds&, const LinkPrices&) { return {}; }
}  // namespace plait
