#pragma once
// How many pages and slots a cache has.
#include "core/generate/kv_cache.h"

namespace plait {

/// Splits `options.cache_bytes`, a total over all ranks, into pages of each pool and state slots. Throws
/// Error(out_of_memory).
CacheCapacity capacity_for(const Decoder& decoder, const Mesh& mesh, const EngineOptions& options);
/// What the sequences of a step use at most, each as long as it can be.
CacheCapacity usable_capacity(const Decoder& decoder, const EngineOptions& options);
/// Pages of the longest sequence that there can be.
int64_t most_pages(const Decoder& decoder, const EngineOptions& options);

/// The bounds for planning a program.
RaggedBounds bounds_for(const CacheCapacity& capacity, const EngineOptions& options);

}  // namespace plait
