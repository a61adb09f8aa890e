// Included first in all that this program compiles: time is a number, which the test moves.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace std::chrono {

struct virtual_clock {
  using duration = nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = chrono::time_point<virtual_clock>;
  static constexpr bool is_steady = true;
  static inline int64_t ticks = 0;
  static time_point now() noexcept { return time_point(duration(ticks)); }
};

}  // namespace std::chrono

#define steady_clock virtual_clock
