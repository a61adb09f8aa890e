#pragma once
// The time limit of runs: a thread that cancels the one under way.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/base/threads.h"
#include "core/exec/memory_budget.h"

namespace plait::c_api {

/// One run at a time. The thread waits without using the processor.
class TimeLimit {
 public:
  TimeLimit(double seconds, std::shared_ptr<MemoryBudget> budget)
      : seconds_(seconds), budget_(std::move(budget)), thread_(start_thread("the thread of the time limit", [this] { watch(); })) {}
  ~TimeLimit() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  /// A run begins, after MemoryBudget::begin.
  void begin() {
    {
      std::lock_guard lock(mutex_);
      const std::chrono::duration<double> limit(seconds_);
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
      running_ = true;
      passed_ = false;
    }
    changed_.notify_all();
  }
  /// It ended; true if it was cancelled because it took too long.
  bool end() {
    std::lock_guard lock(mutex_);
    running_ = false;
    return passed_;
  }
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  void watch() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      if (!running_ || passed_) {
        changed_.wait(lock);
      } else if (Clock::now() < deadline_) {
        changed_.wait_until(lock, deadline_);
      } else {
        passed_ = true;
        budget_->cancel();  // under the lock: never a later run
      }
    }
  }

  const double seconds_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point deadline_;
  bool running_ = false, passed_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace plait::c_api
