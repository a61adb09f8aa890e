#pragma once
// A thread that runs asynchronous collectives.
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace plait {

/// Runs tasks in submission order. After a task throws, later ones are skipped until `forget`. One thread submits and
/// waits.
class CommThread {
 public:
  CommThread();
  /// Waits for all submitted tasks.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Returns the task's number; the first is 1.
  int64_t give(std::function<void()> task);
  /// Waits for that task, and so for all before it. Rethrows what one of them threw.
  void await(int64_t number);
  /// Waits until the queue is empty and discards a stored exception.
  void forget() noexcept;

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> tasks_;
  int64_t last_ = 0, finished_ = 0;  ///< numbers of the last submitted and last finished task
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
