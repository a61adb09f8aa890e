#pragma once
// A pool of threads that its owner passes to whoever computes; there is no global one.
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/function_ref.h"

namespace plait {

/// `threads` counts the caller: ThreadPool(1) starts no thread. Waiting is a spin of at most 50 us (none when there
/// are more threads than processors), then a futex: an idle pool costs nothing. One caller at a time; a task must
/// not call the pool it runs on.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls task(worker) once on every worker, worker in [0, size()), the caller being worker 0, and returns when all
  /// have. The first exception that a task throws is rethrown here.
  void run(FunctionRef<void(int worker)> task);

  /// Calls task(item, worker) for each item in [0, count), handed out one by one; which worker gets which item is
  /// not defined, so results may not depend on it. Small counts run on the caller alone. Throws Error(cancelled) when
  /// items were left out since `stop_on` said so.
  void for_each(int64_t count, FunctionRef<void(int64_t item, int worker)> task);

  /// From here on for_each hands out no more items once `*flag` is true. Null: it hands out all. Returns the flag before.
  const std::atomic<bool>* stop_on(const std::atomic<bool>* flag) { return std::exchange(flag_, flag); }

 private:
  void loop(int worker);
  void call(int worker);
  bool stopped() const { return flag_ && flag_->load(std::memory_order_relaxed); }

  std::vector<std::thread> threads_;
  int64_t spin_ns_ = 0;
  const FunctionRef<void(int)>* task_ = nullptr;
  const std::atomic<bool>* flag_ = nullptr;
  alignas(64) std::atomic<uint32_t> round_{0};   ///< goes up by one for each run; workers wait for it to move
  alignas(64) std::atomic<int32_t> pending_{0};  ///< workers still busy with this round
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

/// The processors that this process may use.
int usable_processors();

}  // namespace plait
