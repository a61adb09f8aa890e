#pragma once
// The verifier of schedules, and what a runner and a planner need to know of one.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_facts.h"

namespace plait {

struct CheckOptions {
  /// Any edges between stages, skips included; unset: the chain.
  std::optional<std::vector<StageEdge>> edges;
  int32_t most_places = 0;    ///< untaken messages that a directed pair of ranks may have; 0: no limit
  int32_t most_versions = 0;  ///< versions of a stage's weights that may be held at a time; 0: no limit
};

/// Checks that the lists do every action once, on its seat, and finish. Time and memory are linear in the number of
/// actions and edges, times the logarithm of `places`.
/// Throws Error(invalid_argument) naming the rank and the position of the action in its list: a missing or repeated
/// action, W without I, B together with I or W, a wrong seat, a stage or micro-batch that does not exist, ranks that
/// wait for each other (the cycle), a version that is not made yet or no longer held, or too few places.
ScheduleFacts check_schedule(const Schedule& schedule, const CheckOptions& options = {});

}  // namespace plait
