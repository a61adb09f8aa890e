#pragma once
// Memory of the emulated devices. It is mapped twice: at the devices' addresses, which the host cannot access except while a kernel
// runs, and where the driver's copies access it.
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "kernels/cuda/driver.h"

namespace plait::emulated {

/// All methods are thread-safe. Addresses are handed out once, so that a stale one is recognised.
class DeviceMemory {
 public:
  /// Addresses of all devices together. Pages take memory once they are written.
  static constexpr int64_t space_bytes = int64_t{256} << 30;

  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;

  /// `bytes` bytes filled with 0xFF (NaNs), 256-byte aligned, that end, rounded up to 256, at a page without access.
  /// 0: no addresses are left.
  cuda::DevicePtr take(int device, size_t bytes);
  /// False if no allocation of this process begins there, or if another process has it open.
  bool free(cuda::DevicePtr memory);

  /// The device whose live allocation contains all of [at, at + bytes); -1 if none does.
  int owner(cuda::DevicePtr at, size_t bytes) const;
  /// Whether the address belongs to this memory, to a live allocation or not.
  bool covers(cuda::DevicePtr at) const { return at >= begin() && at < begin() + static_cast<uint64_t>(space_bytes); }

  /// Where the driver accesses the same byte.
  std::byte* alias(cuda::DevicePtr at) const { return alias_ + (at - begin()); }
  /// From the first `open` to the last `close` the whole process can access the memory of a device.
  void open(int device);
  void close(int device);

  /// Allocations of other processes. `share` is false if none begins there; `map` 0 if there is none any longer, or no room. An open one
  /// gets its address again, and has to be closed as often.
  bool share(cuda::DevicePtr memory, cuda::IpcHandle& handle) const;
  cuda::DevicePtr map(int device, const cuda::IpcHandle& handle);
  /// False if none begins there.
  bool unmap(cuda::DevicePtr memory);
  /// Whether the handle is of this process.
  static bool is_own(const cuda::IpcHandle& handle);

  int64_t bytes(int device) const;
  int64_t allocations() const;
  int64_t allocations(int device) const;

 private:
  struct Allocation {
    std::byte* base = nullptr;  ///< of its pages
    size_t mapped = 0;          ///< bytes of its pages, without the last, which has no access
    size_t bytes = 0;
    int device = 0;
    int opened = 0;  ///< times, of another process; 0: own
    cuda::IpcHandle handle{};
    bool foreign() const { return opened > 0; }
  };
  /// Between processes: where a file descriptor of the owner has the allocation.
  struct Shared {
    pid_t process;
    int file;
    int64_t offset;
    uint64_t mapped, bytes;
  };

  cuda::DevicePtr begin() const { return reinterpret_cast<cuda::DevicePtr>(space_); }
  std::byte* map_space(int access) const;
  std::byte* next(size_t mapped);
  cuda::DevicePtr add(const Allocation& one);
  void protect(const Allocation& one, bool accessible) const;
  /// Processes that have an allocation open, in its last page; 0: none.
  static constexpr int most_openers = 16;
  std::atomic<int32_t>* openers(const Allocation& one) const;
  bool is_open_elsewhere(const Allocation& one) const;

  mutable std::mutex mutex_;
  int file_ = -1;
  std::byte *space_ = nullptr, *alias_ = nullptr;
  int64_t used_ = 0;
  std::map<int, int> open_;                            ///< by device: calls of `open` without their `close`
  std::map<cuda::DevicePtr, Allocation> allocations_;  ///< by address
};

}  // namespace plait::emulated
