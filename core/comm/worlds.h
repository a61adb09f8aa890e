#pragma once
// Helpers to construct worlds.
#include "core/comm/collectives.h"
#include "core/comm/hub.h"
#include "core/comm/world.h"

namespace plait {

constexpr int max_world_size = 1024;

/// A world over a communicator of all ranks. `processors`, clamped to at least 1, and `local_rank`: as in World.
std::unique_ptr<World> make_world(std::shared_ptr<Collectives> communicator, int processors, int local_rank);

/// The group's exchange in its own memory, made by its first rank (`create`) and attached by the others. Collective
/// over `parent`.
std::unique_ptr<Exchange> make_segment_group(std::shared_ptr<Hub> hub, Exchange& parent, std::vector<int> members,
                                             int rank, std::shared_ptr<Mapping> (*create)(int64_t bytes));

/// One rank of each group makes a mapping, the others attach it. Collective over `parent`. `leader`: the rank of
/// parent that makes this rank's mapping; -1: this rank only takes part, and gets null. Throws Error(io) on all ranks
/// of a group if one of them failed.
std::shared_ptr<Mapping> share_mapping(Exchange& parent, int leader, int64_t bytes,
                                       std::shared_ptr<Mapping> (*create)(int64_t bytes));

}  // namespace plait
