#pragma once
// Memory limit and cancellation of a run.
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/base/tensor.h"
#include "core/exec/device.h"

namespace plait {

/// Bytes of memory available to this process: the machine's or its cgroup's limit, the smaller one.
int64_t usable_memory();

/// Shared by an executor and its bodies' executors. `take` and `begin`: the running thread only; the rest: any
/// thread.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  /// 0: three quarters of `usable_memory`, and of a device with memory of its own, all that it has.
  explicit MemoryBudget(int64_t bytes = 0);

  /// Allocates zeroed device memory, counted until its last reference is gone. Throws Error(out_of_memory) with the
  /// bytes requested and left.
  std::shared_ptr<Blob> take(int64_t bytes, Device& device);
  /// Throws as `take` would for that many bytes of host memory, which become the caller's.
  void need(int64_t bytes) const;
  int64_t used() const { return used_; }

  /// Starts a run: clears an earlier `cancel`.
  void begin() { cancelled_ = false; }
  /// The run under way ends with Error(cancelled), between two of its instructions, or between two parts of one that the
  /// pool's threads share.
  void cancel() { cancelled_ = true; }
  /// Throws Error(cancelled) if cancelled.
  void check() const;
  const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  void check_room(int64_t bytes, int64_t limit) const;

  const bool given_;
  const int64_t bytes_;
  std::atomic<int64_t> used_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
