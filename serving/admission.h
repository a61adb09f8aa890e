#pragma once
// The queue: which request starts next, and which is refused because it would wait too long.
#include <chrono>
#include <deque>
#include <span>
#include <vector>

#include "serving/forecast.h"
#include "serving/scheduler_options.h"
#include "serving/step_builder.h"

namespace plait {

/// Not thread-safe: guarded by the scheduler's mutex.
class Admission {
 public:
  /// `context`: of the model, 0: no limit.
  Admission(const SchedulerOptions& options, int64_t context) : options_(options), context_(context) {}

  /// Throws Error(overloaded) if a limit of the queue is exceeded.
  void add(Job job);
  /// The requests to start now, the first that fits: by priority, then by arrival, but first those that were overtaken as often as
  /// one may be, which no other passes. At most `most`.
  std::vector<Job> candidates(size_t most) const;
  /// Takes out the one that has started; earlier ones that still wait were overtaken.
  void started(const Job& job);
  /// A request has ended, whose longest sample has so many tokens, so many seconds after its first.
  void ended(const Job& job, int64_t tokens, double seconds);
  /// On the engine's thread: those that run when a step begins; `prompt_token_s`: seconds that a token of a prompt takes, 0 if not known.
  void set_running(std::span<const Job> running, double prompt_token_s);
  /// Seconds that a request submitted now would wait until its prompt is begun (Forecast). 0 if it need not wait, or if
  /// too little is known.
  double expected_wait(int32_t priority, int64_t samples = 1) const;

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
  /// Takes out any; null: there is none.
  Job take_one();

 private:
  bool must_be_next(const Job& job) const { return job->overtaken >= options_.overtakes; }

  int64_t most_tokens(const Job& job) const;
  WorkLeft waiting_work(const Job& job) const;
  WorkLeft running_work(const Job& job) const;

  const SchedulerOptions options_;
  const int64_t context_;
  std::deque<Job> jobs_;  ///< by arrival
  int64_t tokens_ = 0;    ///< of their prompts
  Forecast forecast_;
  std::vector<WorkLeft> running_;  ///< at `step_begin_`
  std::chrono::steady_clock::time_point step_begin_;
};

}  // namespace plait
