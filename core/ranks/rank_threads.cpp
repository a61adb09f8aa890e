#include "core/ranks/rank_threads.h"

#include "core/base/threads.h"

namespace plait {

RankThreads::RankThreads(int64_t ranks) {
  start_threads(threads_, 1, ranks, [this](int64_t rank) { loop(rank); }, [this] { end(); });
}

RankThreads::~RankThreads() {
  wait();
  end();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::start(Task task) {
  std::lock_guard lock(mutex_);
  task_ = std::move(task);
  busy_ = static_cast<int64_t>(threads_.size());
  ++tasks_;
  started_.notify_all();
}

void RankThreads::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return busy_ == 0; });
  task_ = nullptr;
}

void RankThreads::end() noexcept {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  started_.notify_all();
}

void RankThreads::loop(int64_t rank) {
  std::unique_lock lock(mutex_);
  for (uint64_t done = 0;;) {
    started_.wait(lock, [&] { return stopping_ || tasks_ > done; });
    if (stopping_) return;
    done = tasks_;
    lock.unlock();
    task_(rank);
    lock.lock();
    if (--busy_ == 0) ended_.notify_all();
  }
}

}  // namespace plait
