#pragma once
// Learning rate schedules.
#include <cstdint>
#include <string_view>

namespace plait {

enum class RateSchedule : int32_t { constant, linear, cosine };

/// "constant", "linear", "cosine". Throws Error(invalid_argument) listing them.
RateSchedule rate_schedule_from_name(std::string_view name);
std::string_view rate_schedule_name(RateSchedule schedule);

/// Linear warmup over `warmup` steps to `peak`, then constant, or linear or cosine decay to `floor` * peak at the
/// step after the last one (Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017).
struct LearningRate {
  double peak = 1e-4;
  RateSchedule schedule = RateSchedule::cosine;
  int64_t warmup = 0;
  int64_t steps = 0;  ///< of the whole run; ignored by `constant`
  double floor = 0;   ///< 0 to 1

  /// Rate of the update at `step`, from 0. Depends only on its arguments, so resumed runs continue identically. Stays
  /// at the floor after the last step.
  double at(int64_t step) const;
};

}  // namespace plait
