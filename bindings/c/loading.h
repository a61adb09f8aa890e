#pragma once
// What is made on a thread of its own, while others wait for it, look how far it has come, or call it off.
#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "bindings/c/edge.h"
#include "core/base/load_progress.h"

namespace plait::c_api {

/// Thread-safe. Its end calls the work off and waits for the thread, which notices at its next look at the progress;
/// those who wait for the result are told at once.
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
    thread_ = std::thread([this] { run(); });
    started_ = true;
  }

  /// Waits for the result; throws what ended the work.
  const Result& get() const { return future_.get(); }
  bool wait(int64_t timeout_ms) const { return wait_for(future_, timeout_ms); }
  std::shared_future<Result> future() const { return future_; }
  /// 1 is said only when `get` does not wait.
  double progress() const { return wait(0) ? 1 : 0.999 * progress_.fraction(); }

  /// Work that is under way ends with Error(cancelled).
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
    make_ = nullptr;  // what it holds is not needed any more
  }

  /// The first outcome stands.
  void settle(FunctionRef<void()> tell) {
    if (!settled_.exchange(true)) tell();
  }

  Make make_;
  LoadProgress progress_;
  std::promise<Result> promise_;
  std::shared_future<Result> future_;
  std::atomic<bool> settled_{false};
  std::mutex mutex_;  ///< of the next two
  bool started_ = false;
  std::thread thread_;
};

}  // namespace plait::c_api
