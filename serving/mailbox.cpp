#include "serving/mailbox.h"

namespace plait {

void Mailbox::post(int64_t tag) {
  {
    std::lock_guard lock(mutex_);
    tags_.push_back(tag);
  }
  posted_.notify_one();
}

std::optional<int64_t> Mailbox::next(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !tags_.empty(); };
  if (timeout.count() < 0) posted_.wait(lock, ready);
  else if (!posted_.wait_for(lock, timeout, ready)) return std::nullopt;
  const int64_t tag = tags_.front();
  tags_.pop_front();
  return tag;
}

}  // namespace plait
