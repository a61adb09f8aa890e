#pragma once
// The communicators of programs' groups.
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "core/exec/device.h"
#include "core/exec/program.h"

namespace plait {

/// Makes the communicator of a group: `members` are world ranks, this rank at `index`. Collective over the world,
/// each rank with its own group; groups are equal or disjoint.
using MakeGroup = std::function<std::unique_ptr<Communicator>(std::span<const int32_t> members, int64_t index)>;

/// Splits the world's communicator, for arrays on `device`. World and device must outlive the function.
MakeGroup split_world(World& world, Device& device);

/// The communicators of a rank's programs; groups with equal members share one.
class ProgramGroups {
 public:
  ProgramGroups() = default;
  ProgramGroups(int64_t rank, MakeGroup make) : rank_(rank), make_(std::move(make)) {}

  /// A communicator for each group of the program, as Executor takes them; owned by this. Makes missing ones, so it
  /// is collective over the world.
  std::vector<Communicator*> of(const Program& program);
  /// The communicator of one group; collective over the world where it is missing.
  Communicator* of(const std::vector<int32_t>& members);
  /// How arrays on devices move in the largest group, for reports (transport.h); empty without devices, and without groups.
  std::string transport() const;

 private:
  int64_t rank_ = 0;
  MakeGroup make_;
  std::map<std::vector<int32_t>, std::unique_ptr<Communicator>> groups_;  ///< by members
};

}  // namespace plait
