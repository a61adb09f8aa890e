#include "serving/engine_thread.h"

#include "core/base/error.h"
#include "core/base/threads.h"

namespace plait {

EngineThread::~EngineThread() { stop(); }

void EngineThread::start(Work& work) {
  thread_ = start_thread("the engine's thread", [this, &work] { loop(work); });
}

void EngineThread::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EngineThread::wake() {
  std::lock_guard lock(mutex_);
  wake_requested_ = true;
  work_.notify_all();
}

void EngineThread::run(const std::function<void()>& task) {
  PostedTask posted{&task};
  std::unique_lock lock(mutex_);
  if (stopping_) throw Error(Code::closed, "the generator is closed");
  tasks_.push_back(&posted);
  work_.notify_all();
  task_done_.wait(lock, [&] { return posted.done; });
  if (posted.error) std::rethrow_exception(posted.error);
}

void EngineThread::release_later(Sequences& sequences) noexcept {
  std::lock_guard lock(mutex_);
  if (ended_) return;
  released_.splice(released_.end(), sequences);
  wake_requested_ = true;
  work_.notify_all();
}

void EngineThread::loop(Work& work) {
  while (wait(work)) {
    run_tasks();
    work.iterate();
  }
  work.finish();
  run_tasks();
  Sequences left;
  std::lock_guard lock(mutex_);
  ended_ = true;
  left.swap(released_);
}

/// False when the thread must stop.
bool EngineThread::wait(Work& work) {
  const Clock::time_point due = work.next_due();
  std::unique_lock lock(mutex_);
  const auto awake = [&] { return stopping_ || wake_requested_ || !tasks_.empty() || due == now; };
  if (due == never) work_.wait(lock, awake);
  else work_.wait_until(lock, due, awake);
  wake_requested_ = false;
  return !stopping_;
}

void EngineThread::run_tasks() {
  Sequences released;
  std::unique_lock lock(mutex_);
  released.swap(released_);
  lock.unlock();
  released.clear();  // before the tasks, which may need its memory
  lock.lock();
  while (!tasks_.empty()) {
    PostedTask* posted = tasks_.front();
    tasks_.pop_front();
    const bool closed = stopping_;
    lock.unlock();
    try {
      if (closed) throw Error(Code::closed, "the generator was closed");
      (*posted->task)();
    } catch (...) {
      posted->error = std::current_exception();
    }
    lock.lock();
    posted->done = true;
    task_done_.notify_all();
  }
}

}  // namespace plait
