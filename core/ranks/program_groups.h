#pragma once
// The communicators that programs ask for.
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/comm/world.h"
#include "core/exec/device.h"
#include "core/exec/program.h"

namespace plait {

/// Makes the communicator of a group: `members` are ranks of the world, this rank at `index` among them. All ranks of the world
/// call it at once, each with its own group; groups that are equal or disjoint.
using MakeGroup = std::function<std::unique_ptr<Communicator>(std::span<const int32_t> members, int64_t index)>;

/// Splits the world's communicator, for arrays on `device`. World and device outlive the function.
MakeGroup split_world(World& world, Device& device);

/// The groups of a rank's programs; programs share those of the same members.
class ProgramGroups {
 public:
  ProgramGroups() = default;
  ProgramGroups(int64_t rank, MakeGroup make) : rank_(rank), make_(std::move(make)) {}

  /// A communicator for each group of the program, as Executor takes them. Makes what is missing, so all ranks of the world
  /// call it at once. They live as long as this.
  std::vector<Communicator*> of(const Program& program);

 private:
  int64_t rank_ = 0;
  MakeGroup make_;
  std::map<std::vector<int32_t>, std::unique_ptr<Communicator>> groups_;  ///< by members
};

}  // namespace plait
