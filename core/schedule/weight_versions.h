#pragma once
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_facts.h"

namespace plait {

/// Fills in ScheduleFacts::versions. `most`: as CheckOptions::most_versions. Throws Error(invalid_argument) for a
/// version that is not made yet, or that cannot be held.
void find_versions(const Schedule& schedule, int32_t most, ScheduleFacts& facts);

}  // namespace plait
