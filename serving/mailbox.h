#pragma once
// One wait for many requests: each posts its tag when it has something to return, as gRPC's completion queues do.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace plait {

/// A queue of tags. Thread-safe.
class Mailbox {
 public:
  void post(int64_t tag);
  /// The next tag; nullopt after `timeout` (negative: no limit).
  std::optional<int64_t> next(std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<int64_t> tags_;
};

}  // namespace plait
