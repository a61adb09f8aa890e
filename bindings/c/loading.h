#pragma once
// Asynchronous creation of objects, with waiting, progress and cancellation.
#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "bindings/c/edge.h"
#include "core/base/load_progress.h"
#include "core/base/threads.h"

namespace plait::c_api {

/// Thread-safe. The destructor cancels the work and joins the thread, which notices at its next progress report;
/// waiting callers return at once.
template <class Result>
class Loading {
 public:
  using Make = std::function<Result(LoadProgress&)>;

  explicit Loading(Make make) : make_(std::move(make)), future_(promise_.get_future().share()) {}
  Loading(const Loading&) = delete;
  ~Loading() {
    cancel();
    if (thread_.joinable()) thread_.join();
  }

  /// The first call starts the work.
  void start() {
    std::lock_guard lock(mutex_);
    if (started_) return;
    thread_ = start_thread("the loading thread", [this] { run(); });
    started_ = true;
  }

  /// Waits for the result; throws the error that ended the work.
  const Result& get() const { return future_.get(); }
  bool wait(int64_t timeout_ms) const { return wait_for(future_, timeout_ms); }
  std::shared_future<Result> future() const { return future_; }
  /// 1 only if `get` does not wait.
  double progress() const { return wait(0) ? 1 : 0.999 * progress_.fraction(); }

  /// Pending work ends with Error(cancelled).
  void cancel() {
    {
      std::lock_guard lock(mutex_);
      if (!started_) return;
    }
    progress_.cancel();
    settle([&] {
      promise_.set_exception(std::make_exception_ptr(Error(Code::cancelled, "the loading was cancelled")));
    });
  }

 private:
  void run() {
    try {
      Result made = make_(progress_);
      settle([&] { promise_.set_value(std::move(made)); });
    } catch (...) {
      settle([&] { promise_.set_exception(std::current_exception()); });
    }
    make_ = nullptr;  // releases what it holds
  }

  /// The first outcome wins.
  void settle(FunctionRef<void()> tell) {
    if (!settled_.exchange(true)) tell();
  }

  Make make_;
  LoadProgress progress_;
  std::promise<Result> promise_;
  std::shared_future<Result> future_;
  std::atomic<bool> settled_{false};
  std::mutex mutex_;  ///< guards the next two
  bool started_ = false;
  std::thread thread_;
};

}  // namespace plait::c_api
