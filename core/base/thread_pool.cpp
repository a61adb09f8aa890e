#include "core/base/thread_pool.h"

#include <sched.h>

#include <chrono>

#include "core/base/error.h"

namespace plait {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `done()` or the time limit; reads the clock rarely.
template <class Done>
bool spin(int64_t limit_ns, Done done) {
  if (limit_ns == 0) return done();
  auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
    if ((std::chrono::steady_clock::now() - start).count() > limit_ns) return false;
  }
}

}  // namespace

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
  if (threads > 1 && threads <= usable_processors()) spin_ns_ = 50'000;
  for (int worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { loop(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::call(int worker) {
  try {
    (*task_)(worker);
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::loop(int worker) {
  for (uint32_t seen = 0;; ++seen) {
    if (!spin(spin_ns_, [&] { return round_.load(std::memory_order_acquire) != seen; })) round_.wait(seen);
    if (stop_.load()) return;
    call(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int)> task) {
  if (threads_.empty()) return task(0);
  task_ = &task;
  pending_.store(static_cast<int32_t>(threads_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  call(0);
  if (!spin(spin_ns_, [&] { return pending_.load(std::memory_order_acquire) == 0; }))
    for (int32_t left; (left = pending_.load(std::memory_order_acquire)) != 0;) pending_.wait(left);
  if (error_) {
    auto error = std::exchange(error_, nullptr);
    std::rethrow_exception(error);
  }
}

void ThreadPool::for_each(int64_t count, FunctionRef<void(int64_t, int)> task) {
  std::atomic<int64_t> next{0};
  auto work = [&](int worker) {
    while (!stopped()) {
      const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= count) return;
      task(item, worker);
    }
  };
  if (threads_.empty() || count <= 1) work(0);
  else run(work);
  // Each worker runs until there is no item, or it stops.
  if (next.load(std::memory_order_relaxed) < count) throw Error(Code::cancelled, "the work was cancelled");
}

}  // namespace plait
