#pragma once
// What a decoder needs of its devices' memory, and how large a cache fits, before anything is loaded.
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/exec/device.h"
#include "core/generate/kv_cache.h"

namespace plait {

/// Of a rank, in bytes. A device that does not tell its memory: `known` is false, and the rest empty.
struct RankNeeds {
  bool known = false;
  int64_t free = 0, total = 0;  ///< of the device
  std::string device, name;     ///< DeviceMemoryInfo::id and name
  int64_t weights = 0, adapters = 0;
  int64_t int4_weights = 0;  ///< the weights, were those of matrices rounded to 4 bits
  std::vector<int64_t>
      workspace;  ///< of a step of the largest size, [i]: with sequences of at most 2^i pages; the last: of any
  std::vector<int64_t> page_bytes;  ///< of each pool: a page
  int64_t state_bytes = 0;          ///< a slot of states

  int64_t workspace_bytes(int64_t pages) const;
  int64_t cache_bytes(const CacheCapacity& capacity) const;
  auto fields() {
    return std::tie(known, free, total, device, name, weights, adapters, int4_weights, workspace, page_bytes,
                    state_bytes);
  }
};

/// Of the rank that has compiled `model` and has a pool of `threads`. Memory that the device's groups take is taken before.
RankNeeds needs_of(Device& device, const RaggedModel& model, const EngineOptions& options, int threads);

/// The cache that all ranks' devices hold: of `options.cache_bytes`, or as EngineOptions describes if that is 0. `ranks`: by rank. Throws
/// Error(out_of_memory) of the device that lacks most: what its ranks need by parts, and what would fit; and as capacity_for.
CacheCapacity fitting_capacity(const Decoder& decoder, const Mesh& mesh, const EngineOptions& options,
                               std::span<const RankNeeds> ranks);

/// Values of a ragged program's symbols, by number, for the sizes of its arrays.
std::vector<int64_t> sizes_of(const Program& program, const CacheCapacity& capacity);
/// Bytes of a program's arrays of these sizes, and its arena.
RankBytes bytes_of(const Device& device, const Program& program, std::span<const int64_t> sizes);

}  // namespace plait
