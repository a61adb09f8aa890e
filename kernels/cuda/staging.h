#pragma once
// Copies between a device and host memory that is not pinned, through a ring of pinned blocks.
#include <array>
#include <functional>

#include "kernels/cuda/cuda_context.h"

namespace plait::cuda {

/// Used by one thread at a time.
class StagingRing {
 public:
  /// `wait` waits for an event.
  StagingRing(std::shared_ptr<CudaContext> context, std::function<void(Event)> wait);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;

  /// Enqueues the copy. `host` may be reused after return.
  void write(Stream stream, std::byte* to, const void* host, int64_t bytes);
  /// Returns when the copy is complete.
  void read(Stream stream, void* host, const std::byte* from, int64_t bytes);

 private:
  /// What a block holds between its copies to or from the device.
  struct Slot {
    std::byte* data = nullptr;
    Event copied = nullptr;  ///< after its last copy
    bool used = false;
    std::byte* host = nullptr;  ///< where the bytes of a read belong; null: no read
    int64_t bytes = 0;
  };
  Slot& next();
  void settle(Slot& slot);

  /// Two, so that the host fills or empties one while the other is copied.
  static constexpr size_t slots = 2;
  static constexpr int64_t slot_bytes = int64_t{8} << 20;

  const std::shared_ptr<CudaContext> context_;
  const std::function<void(Event)> wait_;
  std::shared_ptr<Blob> memory_;
  std::array<Slot, slots> slots_;
  size_t next_ = 0;
};

}  // namespace plait::cuda
