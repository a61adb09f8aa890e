#pragma once
// Progress of training on stderr: an overwritten line in a terminal, occasional lines in a file.
#include <chrono>
#include <string>

#include "bindings/c/plait.hpp"

namespace plait::cli {

/// "step 120/1000 [===>      ] loss 2.345, rate 9.8e-05, 1234 tokens/s, 3:21 left, 1.2 GB", without the bar, and
/// truncated, if it were longer than so many columns.
std::string progress_line(const plait_step& step, size_t columns);

class TrainProgress {
 public:
  TrainProgress();
  /// Prints the last step, and keeps the terminal's line.
  ~TrainProgress();
  void show(const plait_step& step);

 private:
  using Clock = std::chrono::steady_clock;
  void print(const plait_step& step);

  const bool terminal_;
  Clock::time_point shown_{};
  plait_step last_{};
  bool any_ = false, pending_ = false;
  size_t width_ = 0;  ///< of the terminal's line so far
};

}  // namespace plait::cli
