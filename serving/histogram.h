#pragma once
// How often values fall between bounds.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/generate/engine.h"

namespace plait {

struct Histogram {
  static constexpr std::array seconds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                         0.1,    0.25,    0.5,    1.0,   2.5,    5.0,   10.0, 25.0};
  static constexpr std::array powers = {1.0,   2.0,    4.0,    8.0,    16.0,   32.0,    64.0,    128.0,   256.0,
                                        512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0};

  std::span<const double> bounds;  ///< ascending
  /// Of values up to each bound and above the one before, then of those above all.
  std::array<int64_t, powers.size() + 1> counts{};
  double sum = 0;

  void add(double value) {
    ++counts[static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
    sum += value;
  }
};

/// Of a scheduler, since its start.
struct SchedulerHistograms {
  Histogram step_seconds{Histogram::seconds};          ///< of a step, to its logits
  Histogram step_samples{Histogram::powers};           ///< in a step
  Histogram step_tokens{Histogram::powers};            ///< computed by a step
  Histogram request_prompt_tokens{Histogram::powers};  ///< of a request that has started
  Histogram request_cached_tokens{Histogram::powers};  ///< of these, found in the cache
  Histogram request_new_tokens{Histogram::powers};  ///< of all samples of a request that has ended after it started

  void add_step(std::span<const Feed> feeds, double seconds) {
    size_t tokens = 0;
    for (const Feed& feed : feeds) tokens += feed.tokens.size();
    step_seconds.add(seconds);
    step_samples.add(static_cast<double>(feeds.size()));
    step_tokens.add(static_cast<double>(tokens));
  }
};

}  // namespace plait
