#pragma once
// How many tokens of prompts a step takes so that those who decode next to it do not wait longer than a goal.
#include <algorithm>
#include <cstdint>

#include "serving/moving_mean.h"

namespace plait {

/// Learns from the steps' times: a step takes the time of its decodes, and of each token of a prompt. For one thread.
class StepGoal {
 public:
  /// `seconds`: of a step in which samples decode; 0: no goal.
  explicit StepGoal(double seconds) : seconds_(seconds) {}

  /// The most tokens of prompts in a step of so many decodes; a part of `most` that leaves the kernels' blocks whole.
  int64_t prompt_tokens(int64_t decodes, int64_t most) const {
    constexpr int64_t block = 16;
    if (seconds_ <= 0 || decodes == 0 || token_s_ <= 0) return most;
    const double left = std::max(0.0, seconds_ - decode_s_) / token_s_;
    if (left >= static_cast<double>(most)) return most;
    const auto blocks = static_cast<int64_t>(left) / block;
    return std::min(most, std::max<int64_t>(blocks, 1) * block);
  }

  /// Seconds; 0: not known.
  double prompt_token() const { return token_s_; }

  void measured(int64_t decodes, int64_t prompt_tokens, double seconds) {
    if (prompt_tokens == 0) return follow(decode_s_, seconds);
    const double own = decodes > 0 ? std::min(decode_s_, seconds) : 0;
    follow(token_s_, (seconds - own) / static_cast<double>(prompt_tokens));
  }

 private:
  const double seconds_;
  double decode_s_ = 0, token_s_ = 0;  ///< moving averages; 0: not known
};

}  // namespace plait
