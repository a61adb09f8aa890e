#pragma once
// What a generator makes a schedule for: ranks, micro-batches, seats of the stages, costs.
#include <cstdint>
#include <functional>
#include <vector>

#include "core/schedule/schedule.h"

namespace plait {

using Seats = std::vector<std::vector<int32_t>>;

/// Prices for generators that choose by simulation ("chimera", "auto", stages with several seats). All ranks need
/// equal ones. Seconds, or any other unit.
struct ScheduleCosts {
  std::function<double(const Action&)> action;  ///< unset: F 1, B 2, I 1, W 1, U 0, divided by the stages of a rank
  double link_s = 0;                            ///< of a message between two ranks
  /// Most micro-batches that a rank holds values of, from F to the end of B or W; v stages of a rank may each hold so
  /// many. 0: what 1F1B, or interleaved with as many stages, holds; chimera takes up to half as many again if that is
  /// faster.
  int32_t most_live = 0;
};

struct ScheduleShape {
  int32_t ranks = 1;          ///< pipeline ranks
  int32_t micro_batches = 1;  ///< of a step
  int32_t steps = 1;          ///< of a window without a flush; for asynchronous schedules only
  /// Asynchronous schedules: an update waits for numbers of all stages, such as the norm of the gradients, and comes as many
  /// backwards later as keeps ranks from waiting.
  bool global_norm = false;
  Seats seats;                ///< for schedules with one stage a seat ("1f1b"); empty: the schedule's own
  ScheduleCosts costs;
};

}  // namespace plait
