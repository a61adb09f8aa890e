#pragma once
// The queue: which request starts next, and which is refused because it would wait too long.
#include <chrono>
#include <deque>
#include <span>
#include <vector>

#include "serving/scheduler_options.h"
#include "serving/step_builder.h"

namespace plait {

/// Not thread-safe: guarded by the scheduler's mutex.
class Admission {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Admission(const SchedulerOptions& options) : options_(options) {}

  /// Throws Error(overloaded) if a limit of the queue is exceeded; `all_run`: every sample of a step is taken.
  void add(Job job, bool all_run);
  /// The requests to start now, the first that fits: by priority, then by arrival, but first those that were overtaken as often as
  /// one may be, which no other passes. At most `most`.
  std::vector<Job> candidates(size_t most) const;
  /// Takes out the one that has started; earlier ones that still wait were overtaken.
  void started(const Job& job);
  /// A running request has ended, while so many wait.
  void ended(Clock::time_point now, double seconds_run);
  /// Seconds that a request submitted now would wait: those ahead of it start at the rate at which requests end. 0 if it need not
  /// wait, or if none has ended yet.
  double expected_wait(bool all_run, int32_t priority) const;

  const std::deque<Job>& jobs() const { return jobs_; }
  int64_t tokens() const { return tokens_; }
  /// Takes out those for which `over` is true, which it keeps elsewhere.
  template <class Over>
  void erase_if(Over over) {
    std::erase_if(jobs_, [&](const Job& job) {
      const bool erased = over(job);
      if (erased) tokens_ -= static_cast<int64_t>(job->prompt.size());
      return erased;
    });
  }
  std::deque<Job> take_all();

 private:
  bool must_be_next(const Job& job) const { return job->overtaken >= options_.overtakes; }

  const SchedulerOptions options_;
  std::deque<Job> jobs_;  ///< by arrival
  int64_t tokens_ = 0;    ///< of their prompts
  Clock::time_point last_end_;
  double between_ends_ = 0;  ///< seconds, a moving average of times in which requests ran; 0: not known
};

}  // namespace plait
