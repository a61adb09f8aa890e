#include "core/ranks/program_groups.h"

#include <algorithm>

namespace plait {

MakeGroup split_world(World& world, Device& device) {
  return [&world, &device](std::span<const int32_t> members, int64_t index) {
    // Groups of one call are disjoint, so the lowest member identifies them.
    const int color = *std::min_element(members.begin(), members.end());
    return device.communicator(world.communicator().split(color, static_cast<int>(index)));
  };
}

std::vector<Communicator*> ProgramGroups::of(const Program& program) {
  std::vector<Communicator*> out;
  for (const std::vector<int32_t>& members : program.groups) out.push_back(of(members));
  return out;
}

Communicator* ProgramGroups::of(const std::vector<int32_t>& members) {
  std::unique_ptr<Communicator>& group = groups_[members];
  if (!group) {
    const auto index = std::find(members.begin(), members.end(), rank_) - members.begin();
    group = make_(members, index);
  }
  return group.get();
}

std::string ProgramGroups::transport() const {
  const auto largest = std::max_element(groups_.begin(), groups_.end(),
                                        [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
  if (largest == groups_.end() || largest->first.size() < 2) return "";
  return largest->second->transport();
}

}  // namespace plait
