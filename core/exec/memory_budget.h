#pragma once
// What a run may use, and the wish that it end.
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/base/tensor.h"
#include "core/exec/device.h"

namespace plait {

/// Bytes of memory that this process may have: the machine's, or its control group's where that has fewer.
int64_t usable_memory();

/// Shared by an executor and those of its bodies. `take` and `begin` are the running thread's; the rest is any thread's.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  /// 0: three quarters of `usable_memory`.
  explicit MemoryBudget(int64_t bytes = 0);

  /// Zeroed memory of the device, which counts until its last holder is gone. Throws Error(out_of_memory) with what was
  /// asked for and what is left.
  std::shared_ptr<Blob> take(int64_t bytes, Device& device);
  int64_t used() const { return used_; }

  /// A run begins: forgets a `cancel` before it.
  void begin() { cancelled_ = false; }
  /// The run under way ends with Error(cancelled), between two of its instructions, or between two parts of one that the
  /// pool's threads share.
  void cancel() { cancelled_ = true; }
  /// Throws Error(cancelled) once the run was cancelled.
  void check() const;
  const std::atomic<bool>& cancelled() const { return cancelled_; }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
