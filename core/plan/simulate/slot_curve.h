#pragma once
// The memory of micro-batches in flight while a simulated step runs.
#include <vector>

#include "core/plan/stages/stage_costs.h"
#include "core/schedule/schedule.h"
#include "core/schedule/timeline.h"

namespace plait {

/// From `seconds` on a rank's slots hold so many bytes.
struct SlotPoint {
  double seconds = 0;
  double bytes = 0;
};

/// Of each rank, by time. A set is held as LivePeaks describes; the set of an action itself always. What a rank reserves is the sum of its
/// pools' peaks, which need not be at one time, so no point is above it. `stages`: costs of each stage.
std::vector<std::vector<SlotPoint>> slot_curves(const Schedule& schedule, const Timeline& timeline,
                                                const std::vector<StageCosts>& stages);

/// The most of each of `cells` equal parts of `seconds`.
std::vector<double> most_in_cells(const std::vector<SlotPoint>& curve, double seconds, size_t cells);

}  // namespace plait
