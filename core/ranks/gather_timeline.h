#pragma once
// The measured timeline of all ranks of a pipeline.
#include <functional>
#include <vector>

#include "core/comm/communicator.h"
#include "core/exec/executor.h"
#include "core/schedule/schedule.h"
#include "core/schedule/timeline.h"

namespace plait {

/// Joins what each rank measured in seconds of `clock`, and returns it on every rank. Ranks whose clocks differ, as
/// those of different machines do, are aligned where they leave a barrier. Collective over `pipeline`, the ranks that
/// ran the schedule, for host memory; null: this rank ran all of it.
Timeline gather_timeline(Communicator* pipeline, const Schedule& schedule, const std::vector<TimelineSpan>& spans,
                         const std::function<double()>& clock = monotonic_s);

}  // namespace plait
