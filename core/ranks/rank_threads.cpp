#include "core/ranks/rank_threads.h"

namespace plait {

RankThreads::RankThreads(int64_t ranks) {
  threads_.reserve(static_cast<size_t>(ranks - 1));
  try {
    for (int64_t rank = 1; rank < ranks; ++rank) threads_.emplace_back([this, rank] { loop(rank); });
  } catch (...) {  // the system has no more threads
    stop();
    throw;
  }
}

RankThreads::~RankThreads() {
  wait();
  stop();
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

void RankThreads::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    started_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
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
