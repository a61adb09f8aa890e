#include "core/exec/comm_thread.h"

#include <utility>

#include "core/base/threads.h"

namespace plait {

CommThread::CommThread() : thread_(start_thread("the thread of collectives", [this] { loop(); })) {}

CommThread::~CommThread() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  given_.notify_one();
  thread_.join();
}

int64_t CommThread::give(std::function<void()> task) {
  int64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    number = ++last_;
  }
  given_.notify_one();
  return number;
}

void CommThread::await(int64_t number) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_ >= number; });
  if (error_) std::rethrow_exception(error_);
}

void CommThread::forget() noexcept {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_ == last_; });
  error_ = nullptr;
}

void CommThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    given_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    if (!error_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        task();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = std::move(error);
    }
    ++finished_;
    done_.notify_one();
  }
}

}  // namespace plait
