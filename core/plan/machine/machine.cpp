#include "core/plan/machine/machine.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

double DeviceSpeed::flops_per_second(DType dtype, double least_dim) const {
  const auto found = peak.find(dtype);
  if (found == peak.end())
    throw Error(Code::invalid_argument, cat("the machine's device has no peak for ", dtype_name(dtype)),
                "add it to \"peak\" in the machine's file");
  const double speed = found->second.at(least_dim);
  if (found->second.points().size() > 1) return speed;
  return speed * most * (knee > 0 ? 1 - std::exp(-least_dim / knee) : 1);
}

double DeviceSpeed::filled(double tiles) const {
  if (processors <= 0 || tiles <= processors) return 1;
  const double rounds = tiles / processors;
  return rounds / std::ceil(rounds);
}

void Machine::check_ranks(int64_t ranks) const {
  const int64_t has = levels.empty() ? 1 : levels.back().ranks;
  if (has && ranks > has)
    throw Error(Code::invalid_argument,
                cat("machine ", quote(name), " links ", has, " ranks, and ", ranks, " are asked for"),
                "fewer ranks, or a further level in the machine's file");
}

const LinkLevel& Machine::level_between(int64_t a, int64_t b) const {
  for (const LinkLevel& level : levels)
    if (level.ranks == 0 || a / level.ranks == b / level.ranks) return level;
  throw Error(Code::invalid_argument, cat("machine ", quote(name), " has ", levels.empty() ? 1 : levels.back().ranks,
                                          " ranks, and rank ", std::max(a, b), " is asked for"));
}

double Machine::bandwidth(const LinkLevel& level, int64_t users) const {
  return level.shared ? level.bandwidth / static_cast<double>(std::max<int64_t>(users, 1)) : level.bandwidth;
}

}  // namespace plait
