#pragma once
#include <cstdint>
#include <string>

#include "core/schedule/timeline.h"

namespace plait {

/// Replaces the file by a drawing of the timeline of a step, or of the window that ends with it: SVG if the path ends
/// in .svg, otherwise text in the form of the plan's. Throws Error(io).
void write_timeline(const std::string& path, const Timeline& timeline, int64_t step);

}  // namespace plait
