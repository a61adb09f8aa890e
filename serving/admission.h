#pragma once
// The queue: which request starts next, and which is refused because it would wait too long.
#include <deque>
#include <span>
#include <vector>

#include "serving/scheduler_options.h"
#include "serving/step_builder.h"

namespace plait {

/// Not thread-safe: guarded by the scheduler's mutex.
class Admission {
 public:
  explicit Admission(const SchedulerOptions& options) : options_(options) {}

  /// Throws Error(overloaded) if a limit of the queue is exceeded. `running`: samples that run.
  void add(Job job, int64_t running);
  /// The requests to start now, the first that fits: by priority, then by arrival, but first those that were overtaken as often as
  /// one may be, which no other passes. At most `most`.
  std::vector<Job> candidates(size_t most) const;
  /// Takes out the one that has started; earlier ones that still wait were overtaken.
  void started(const Job& job);
  /// A request has ended that ran for so long.
  void ended(double seconds_run);
  /// Seconds that a request submitted now would wait: with so many samples running, each for the mean time of a request, one ends
  /// every time / `running` (Little's law), and one of those ahead starts. 0 if it need not wait, or if none has ended yet.
  double expected_wait(int64_t running, int32_t priority) const;

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
  double run_s_ = 0;      ///< of a request, from its start to its end: a moving average; 0: not known
};

}  // namespace plait
