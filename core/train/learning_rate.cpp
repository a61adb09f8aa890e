#include "core/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

static constexpr std::string_view names[] = {"constant", "linear", "cosine"};

RateSchedule rate_schedule_from_name(std::string_view name) {
  auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names))
    throw Error(Code::invalid_argument, cat("no schedule of learning rates is called ", quote(name)),
                cat("choose one of ", join({std::begin(names), std::end(names)}, ", ")));
  return static_cast<RateSchedule>(found - std::begin(names));
}

std::string_view rate_schedule_name(RateSchedule schedule) { return names[static_cast<size_t>(schedule)]; }

double LearningRate::at(int64_t step) const {
  // Not zero at the first step, and the peak at step `warmup`.
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (schedule == RateSchedule::constant) return peak;
  const double whole = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  const double done = std::min(static_cast<double>(step - warmup) / whole, 1.0);
  const double left = schedule == RateSchedule::linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return peak * (floor + (1 - floor) * left);
}

}  // namespace plait
