#pragma once
// The one thread that uses an engine.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "core/generate/engine.h"

namespace plait {

/// Iterates while there is work and sleeps otherwise. Between iterations it runs tasks posted by other threads and
/// releases sequences, which only the engine's thread may do. Thread-safe.
class EngineThread {
 public:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
  static constexpr Clock::time_point now = Clock::time_point::min(), never = Clock::time_point::max();

  /// Callbacks, called on the engine's thread only. They must not throw.
  class Work {
   public:
    virtual ~Work() = default;
    /// The time of the next iteration, unless `wake` or a task comes earlier.
    virtual Clock::time_point next_due() = 0;
    virtual void iterate() = 0;
    /// After the last iteration.
    virtual void finish() = 0;
  };

  EngineThread() = default;
  ~EngineThread();  ///< stops it

  /// `work` must outlive the thread.
  void start(Work& work);
  /// Stops and joins the thread; tasks not yet run fail with Error(closed).
  void stop();
  void wake();
  /// Runs `task` on the thread, waits for it, and rethrows its error. Throws Error(closed) after `stop`.
  void run(const std::function<void()>& task);
  /// A list, since giving an element to another takes no memory: destructors do it.
  using Sequences = std::list<std::unique_ptr<Sequence>>;
  /// Releases the sequences on the engine's thread; those of the caller's list, if that has ended.
  void release_later(Sequences& sequences) noexcept;

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
  Sequences released_;
  std::deque<PostedTask*> tasks_;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
