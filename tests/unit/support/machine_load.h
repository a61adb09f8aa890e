#pragma once
// How slow the machine is at present, for limits of time in tests: no limit is a number of seconds of a fast machine.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace plait::test {

/// Seconds after which only what hangs has not come: for waits that a test is not about.
constexpr double hang_s = 1800;
constexpr std::chrono::seconds hang{1800};

/// How many times as long a piece of work takes as on a free core of 2023, at least 1: a slower processor counts, other programs on it,
/// and a share of it that a container is given. What works needs so much longer, so tests multiply their limits by it.
inline double machine_load() {
  const auto measured = [](int pieces) {
    constexpr double piece_s = 0.02;  // of an AMD Zen 4 at 3.7 GHz, at any level of optimisation
    volatile uint64_t chain = 1;      // through memory, so that no compiler shortens it
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < pieces * 10'000'000; ++i) chain = chain * 6364136223846793005u + 1;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return passed.count() / (pieces * piece_s);
  };
  static const double share = measured(15);  // longer than the tenth of a second over which shares are counted
  return std::max({1.0, share, measured(1)});
}

/// Whether the condition comes true before what hangs would be given up.
template <class Condition>
bool eventually(const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  while (!condition()) {
    if (std::chrono::steady_clock::now() - begin > hang) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace plait::test
