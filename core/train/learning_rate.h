#pragma once
// How fast weights change, by step.
#include <cstdint>
#include <string_view>

namespace plait {

enum class RateSchedule : int32_t { constant, linear, cosine };

/// "constant", "linear", "cosine". Throws Error(invalid_argument), which lists them.
RateSchedule rate_schedule_from_name(std::string_view name);
std::string_view rate_schedule_name(RateSchedule schedule);

/// Rises for `warmup` steps in equal parts to `peak`, then stays, or falls along a line or half a cosine to `floor` * peak
/// at the step behind the last one. (Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.)
struct LearningRate {
  double peak = 1e-4;
  RateSchedule schedule = RateSchedule::cosine;
  int64_t warmup = 0;
  int64_t steps = 0;  ///< of the whole run; not looked at by `constant`
  double floor = 0;   ///< 0 to 1

  /// Of the update at `step`, from 0 on: no more than its arguments, so that a run that is taken up again goes on as it
  /// would have. Behind the last step it stays at the floor.
  double at(int64_t step) const;
};

}  // namespace plait
