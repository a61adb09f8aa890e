#include "serving/masks.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "core/comm/report.h"

namespace plait {

using MaskClock = std::chrono::steady_clock;

static double seconds_of(MaskClock::time_point start) {
  return std::chrono::duration<double>(MaskClock::now() - start).count();
}

MaskThread::~MaskThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ordered_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskThread::order(const std::shared_ptr<MaskState>& state) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error&) {
      return;  // no more threads: `take` computes it
    }
  }
  try {
    queue_.push_back(state);
  } catch (const std::bad_alloc&) {
    return;  // as above
  }
  state->phase = MaskState::Phase::ordered;
  ordered_.notify_one();
}

const NextTokens& MaskThread::take(const std::shared_ptr<MaskState>& state) {
  const MaskClock::time_point start = MaskClock::now();
  std::unique_lock lock(mutex_);
  const bool waits = state->phase != MaskState::Phase::done;
  if (state->phase == MaskState::Phase::computing) {
    done_.wait(lock, [&] { return state->phase == MaskState::Phase::done; });
  } else if (state->phase != MaskState::Phase::done) {
    std::erase(queue_, state);
    lock.unlock();
    compute(*state);
    lock.lock();
    ++stats_.masks;
    stats_.seconds += seconds_of(start);
  }
  state->phase = MaskState::Phase::here;
  if (waits) stats_.wait_seconds += seconds_of(start);
  if (state->error) throw *state->error;
  return state->next;
}

MaskStats MaskThread::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void MaskThread::compute(MaskState& state) {
  try {
    state.error.reset();
    state.next = state.constraint.next();
  } catch (...) {
    state.error = current_error();
  }
}

void MaskThread::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ordered_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<MaskState> state = std::move(queue_.front());
    queue_.pop_front();
    if (state.use_count() == 1) continue;  // its sample has ended
    state->phase = MaskState::Phase::computing;
    lock.unlock();
    const MaskClock::time_point start = MaskClock::now();
    compute(*state);
    const double seconds = seconds_of(start);
    lock.lock();
    ++stats_.masks;
    stats_.seconds += seconds;
    state->phase = MaskState::Phase::done;
    done_.notify_all();
  }
}

}  // namespace plait
