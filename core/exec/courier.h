#pragma once
// What goes on beside a run.
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace plait {

/// A thread that does what it is given, one after the other. Behind a task that throws none is done until `forget`. One thread
/// gives and waits.
class Courier {
 public:
  Courier();
  /// Waits for what is under way.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  /// Returns the task's number: they count from 1.
  int64_t give(std::function<void()> task);
  /// Returns once the task of that number, and so all before it, are done; throws what one of them threw.
  void await(int64_t number);
  /// Waits until nothing is under way, and forgets what was thrown.
  void forget() noexcept;

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable given_, done_;
  std::deque<std::function<void()>> tasks_;
  int64_t last_ = 0, finished_ = 0;  ///< numbers: of the task that was given last, and of that which ended last
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;  ///< the last member: it uses the others
};

}  // namespace plait
