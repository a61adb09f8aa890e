#pragma once
// The one thread that uses an engine.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/generate/engine.h"

namespace plait {

/// Iterates while there is work and sleeps otherwise. Between two iterations it runs tasks that other threads post, and
/// releases sequences, which is the engine's thread's to do. Thread-safe.
class EngineThread {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::time_point now = Clock::time_point::min(), never = Clock::time_point::max();

  /// What the thread does; it alone calls these. They do not throw.
  class Work {
   public:
    virtual ~Work() = default;
    /// When the next iteration is due, unless `wake` or a task comes before.
    virtual Clock::time_point next_due() = 0;
    virtual void iterate() = 0;
    /// After the last iteration.
    virtual void finish() = 0;
  };

  /// `work` outlives the thread.
  void start(Work& work);
  /// Ends the thread and waits for it; tasks that were not run fail with Error(closed).
  void stop();
  void wake();
  /// Runs `task` on the thread and returns when it is done; rethrows what it throws. Throws Error(closed) after `stop`.
  void run(const std::function<void()>& task);
  /// Releases the sequence on the thread; here, if the thread has ended.
  void release_later(std::unique_ptr<Sequence> sequence);

 private:
  struct PostedTask {
    const std::function<void()>* task;
    bool done = false;
    std::exception_ptr error;
  };

  void loop(Work& work);
  bool wait(Work& work);
  void run_tasks();

  std::mutex mutex_;
  std::condition_variable work_, task_done_;
  bool stopping_ = false, ended_ = false, wake_requested_ = false;
  std::vector<std::unique_ptr<Sequence>> released_;
  std::deque<PostedTask*> tasks_;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
