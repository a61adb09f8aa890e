#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plait::cuda {

StagingRing::StagingRing(std::shared_ptr<CudaContext> context, std::function<void(Event)> wait)
    : context_(std::move(context)), wait_(std::move(wait)), memory_(context_->take_pinned(slots * slot_bytes)) {
  for (size_t i = 0; i < slots; ++i) slots_[i].data = memory_->mutable_data() + static_cast<int64_t>(i) * slot_bytes;
  try {
    for (Slot& slot : slots_)
      context_->driver().call(context_->driver().event_create, &slot.copied, event_disable_timing);
  } catch (...) {
    for (Slot& slot : slots_)
      if (slot.copied) context_->driver().event_destroy(slot.copied);
    throw;
  }
}

StagingRing::~StagingRing() {
  for (Slot& slot : slots_) context_->driver().event_destroy(slot.copied);
}

/// Waits for the slot's last copy; what it read goes to the host.
void StagingRing::settle(Slot& slot) {
  if (!slot.used) return;
  slot.used = false;
  std::byte* const host = std::exchange(slot.host, nullptr);
  wait_(slot.copied);
  if (host) std::memcpy(host, slot.data, static_cast<size_t>(slot.bytes));
}

StagingRing::Slot& StagingRing::next() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots;
  settle(slot);
  return slot;
}

void StagingRing::write(Stream stream, std::byte* to, const void* host, int64_t bytes) {
  const CudaDriver& driver = context_->driver();
  for (int64_t at = 0; at < bytes; at += slot_bytes) {
    Slot& slot = next();
    const auto part = static_cast<size_t>(std::min(slot_bytes, bytes - at));
    std::memcpy(slot.data, static_cast<const std::byte*>(host) + at, part);
    driver.call(driver.copy_to_device, reinterpret_cast<DevicePtr>(to + at), static_cast<const void*>(slot.data),
                part, stream);
    slot.used = true;
    driver.call(driver.event_record, slot.copied, stream);
  }
}

void StagingRing::read(Stream stream, void* host, const std::byte* from, int64_t bytes) {
  const CudaDriver& driver = context_->driver();
  for (int64_t at = 0; at < bytes; at += slot_bytes) {
    Slot& slot = next();
    slot.bytes = std::min(slot_bytes, bytes - at);
    driver.call(driver.copy_to_host, static_cast<void*>(slot.data), reinterpret_cast<DevicePtr>(from + at),
                static_cast<size_t>(slot.bytes), stream);
    slot.host = static_cast<std::byte*>(host) + at;
    slot.used = true;
    driver.call(driver.event_record, slot.copied, stream);
  }
  for (Slot& slot : slots_)
    if (slot.host) settle(slot);
}

}  // namespace plait::cuda
