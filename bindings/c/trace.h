#pragma once
#include <string>
#include <vector>

#include "core/exec/executor.h"

namespace plait::c_api {

/// The events of each rank in the format of Chrome's trace viewer (Trace Event Format, "X" events): a process per
/// rank, with waits within collectives. Times are relative to the first event.
std::string trace_text(const std::vector<std::vector<TraceEvent>>& ranks);

}  // namespace plait::c_api
