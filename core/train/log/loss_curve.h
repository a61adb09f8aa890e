#pragma once
// A picture of a run.
#include <span>
#include <string>
#include <string_view>

#include "core/train/log/training_log.h"

namespace plait {

/// The losses over the steps as an SVG image that stands alone: each step's loss, the same smoothed, and the evaluation
/// losses, on axes that fit them. In a browser it follows the reader's light or dark scheme. Reports need not be finite, sorted
/// or many; the image stays below some 100 kB.
std::string loss_curve_svg(std::span<const StepReport> reports, std::string_view title = "Training loss");

}  // namespace plait
