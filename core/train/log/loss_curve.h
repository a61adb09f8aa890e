#pragma once
// Plots a run's losses.
#include <span>
#include <string>
#include <string_view>

#include "core/train/log/training_log.h"

namespace plait {

/// The losses over the steps as a self-contained SVG image: each step's loss, smoothed loss, and evaluation losses.
/// Follows the browser's light or dark scheme. Reports may be unsorted, not finite or many; the image stays below
/// about 100 kB.
std::string loss_curve_svg(std::span<const StepReport> reports, std::string_view title = "Training loss");

}  // namespace plait
