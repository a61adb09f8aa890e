#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_facts.h"

namespace plait {

/// Checks that every action is in the lists once, on its seat, and after what it needs of its own rank. Throws
/// Error(invalid_argument) as check_schedule does.
void check_actions(const Schedule& schedule, const std::vector<StageEdge>& edges);

/// An error about an action: "schedule: rank 2, action 5 (3I0): ...".
Error action_error(const Schedule& schedule, size_t rank, size_t position, std::string_view why,
                   std::string hint = {});

}  // namespace plait
