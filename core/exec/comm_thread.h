#pragma once
// A thread for collectives that run while the program goes on.
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace plait {

/// Does tasks in the order they were given. After one that throws, none is done until `forget`. One thread gives and waits.
class CommThread {
 public:
  CommThread();
  /// Waits for the tasks given.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  /// Returns the task's number; the first is 1.
  int64_t give(std::function<void()> task);
  /// Returns once the task of that number, and so all before it, are done; throws what one of them threw.
  void await(int64_t number);
  /// Waits until no task is left, and drops what was thrown.
  void forget() noexcept;

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> tasks_;
  int64_t last_ = 0, finished_ = 0;  ///< numbers of the last task given, and of the last one done
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
