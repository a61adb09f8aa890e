#pragma once
// How busy the machine is, for limits of time in tests.
#include <algorithm>
#include <chrono>
#include <ctime>

namespace plait::test {

/// Seconds of the clock that a second of a processor takes at present, at least 1: twice as many where two programs share it. A
/// rank that works needs so much longer to come, so tests multiply their deadlines by it.
inline double machine_load() {
  constexpr double measured_s = 0.02;
  const auto processor_s = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const auto begin = std::chrono::steady_clock::now();
  for (const double first = processor_s(); processor_s() - first < measured_s;) {
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return std::max(1.0, passed.count() / measured_s);
}

}  // namespace plait::test
