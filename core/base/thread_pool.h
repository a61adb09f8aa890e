#pragma once
// A thread pool, passed explicitly; there is no global one.
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/function_ref.h"

namespace plait {

/// `threads` includes the caller: ThreadPool(1) starts no thread. Workers spin for at most 50 us (not at all with
/// more threads than processors), then wait on a futex: an idle pool costs nothing. One caller at a time; a task must
/// not call its own pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls task(worker) once on every worker in [0, size()), worker 0 being the caller, and returns when all have
  /// ended. Rethrows the first exception of a task. for_each, in contrast, waits for no worker that has not begun: where
  /// other processes have the processors, its items end without it.
  void run(FunctionRef<void(int worker)> task);

  /// Calls task(item, worker) for each item in [0, count), scheduled dynamically: results must not depend on which
  /// worker gets which item. Small counts run on the caller only. Throws Error(cancelled) if `stop_on` left items out.
  void for_each(int64_t count, FunctionRef<void(int64_t item, int worker)> task);

  /// for_each stops scheduling items once `*flag` is true, and check_stopped ends them, as it does work on the calling thread; null: never.
  /// Returns the previous flag.
  const std::atomic<bool>* stop_on(const std::atomic<bool>* flag);

 private:
  void loop(int worker);
  void end();
  void call(int worker);
  bool stopped() const { return flag_ && flag_->load(std::memory_order_relaxed); }

  std::vector<std::thread> threads_;
  int64_t spin_ns_ = 0;
  const FunctionRef<void(int)>* task_ = nullptr;
  const std::atomic<bool>* flag_ = nullptr;
  alignas(64) std::atomic<uint32_t> round_{0};   ///< goes up by one for each run; workers wait for it to move
  alignas(64) std::atomic<int32_t> pending_{0};  ///< who takes part in this round (Gate in the source); the caller waits
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

/// The processors that this process may use.
int usable_processors();

/// Throws Error(cancelled) if the pool that the calling thread works for is stopped (`stop_on`).
void check_stopped();

/// Counts elementary steps of a long loop, of which it calls check_stopped once in many.
class StopCheck {
 public:
  void count(int64_t steps = 1) {
    if ((left_ -= steps) > 0) return;
    left_ = every;
    check_stopped();
  }

 private:
  static constexpr int64_t every = 1 << 16;
  int64_t left_ = every;
};

}  // namespace plait
