#pragma once
// What the makers of worlds share.
#include "core/comm/collectives.h"
#include "core/comm/hub.h"
#include "core/comm/world.h"

namespace plait {

constexpr int max_world_size = 1024;

/// A world over a communicator of all ranks. `processors`: as World::processors; less than 1 counts as 1.
std::unique_ptr<World> make_world(std::shared_ptr<Collectives> communicator, int processors);

/// The group's exchange in memory of its own, which its first rank makes (`create`) and the others attach. All ranks of
/// `parent` call it at once.
std::unique_ptr<Exchange> make_segment_group(std::shared_ptr<Hub> hub, Exchange& parent, std::vector<int> members,
                                             int rank, std::shared_ptr<Mapping> (*create)(int64_t bytes));

/// One rank of each group makes a mapping, the others attach it; all ranks of `parent` call it at once. `leader`: who
/// makes this rank's, a rank of parent; -1: this rank only
/// listens, and gets null. Throws Error(io) on all ranks of a group of which one could not.
std::shared_ptr<Mapping> share_mapping(Exchange& parent, int leader, int64_t bytes,
                                       std::shared_ptr<Mapping> (*create)(int64_t bytes));

}  // namespace plait
