#pragma once
// A device's context: what its memory, queues and kernels have in common. Lives until the last of them is gone.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/exec/device.h"
#include "kernels/cuda/cuda_libraries.h"
#include "kernels/cuda/cuda_queue.h"

namespace plait::cuda {

/// A group of ranks whose work on the device waits for other ranks.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  /// Throws what has ended the group. Any thread.
  virtual void check() = 0;
  /// Communicator::note_device_wait, of the ranks.
  virtual void note_wait(double waited_s) noexcept = 0;
  /// Ends what waits for other ranks on the device, without a result. Any thread.
  virtual void stop() noexcept = 0;
};

/// All methods may be called by any thread.
class CudaContext : public std::enable_shared_from_this<CudaContext> {
 public:
  /// Retains the primary context of the device and loads the kernels. Throws Error(unsupported) if there is no such device, or it is too
  /// old for the kernels.
  CudaContext(std::shared_ptr<const CudaLibraries> libraries, int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;

  const CudaDriver& driver() const { return libraries_->driver; }
  const CudaLibraries& libraries() const { return *libraries_; }
  int ordinal() const { return ordinal_; }
  DeviceNumber device() const { return device_; }
  Context handle() const { return context_; }
  /// Makes it the calling thread's context: the first thing that a thread does before other calls.
  void enter() const { driver().call(driver().context_set, context_); }

  /// Device memory of undefined content, at least 256-byte aligned. Throws Error(out_of_memory) with what is free.
  std::shared_ptr<Blob> take(int64_t bytes);
  /// Of the driver.
  DeviceMemoryInfo memory() const;
  /// Pinned host memory of undefined content, which the device can access under the same address.
  std::shared_ptr<Blob> take_pinned(int64_t bytes);

  /// A kernel that may have so much dynamic shared memory. Throws Error(internal) if no image has one of that name.
  KernelHandle kernel(const char* name, unsigned shared_bytes);

  /// Registered while they exist. Waits look at the groups; `settle` waits for the streams.
  void add(DeviceGroup& group);
  void remove(DeviceGroup& group) noexcept;
  void add(Stream stream);
  void remove(Stream stream) noexcept;
  /// Waits for an event. A rank that fails would leave it waiting, so groups are looked at meanwhile: throws what has ended one of them,
  /// and all of the device's are stopped then.
  void wait_for(Event event);
  /// Waits until the device has done what its streams have, or a group has ended and so stopped it: before calls of the driver that wait
  /// for a device without looking at groups, as those do that free memory.
  void settle() noexcept;
  bool has_groups();

 private:
  friend class Capturing;
  void check_groups();
  void note_wait(double waited_s) noexcept;
  void find_device();
  void load_images();
  KernelHandle find_kernel(const char* name) const;
  void release() noexcept;

  struct LoadedKernel {
    KernelHandle handle = nullptr;
    unsigned shared_bytes = 48 << 10;  ///< what it may have; more has to be asked for
  };

  const std::shared_ptr<const CudaLibraries> libraries_;
  const int ordinal_;
  DeviceNumber device_ = 0;
  Context context_ = nullptr;
  std::vector<Library> images_;
  std::mutex mutex_;
  std::map<std::string, LoadedKernel, std::less<>> kernels_;
  std::mutex work_mutex_;
  std::set<DeviceGroup*> groups_;
  std::set<Stream> streams_;
  std::mutex capture_mutex_;                ///< of a capture, and of events that are recorded in any stream
  std::atomic<std::thread::id> capturing_;  ///< the thread that has a Capturing
};

/// While a thread captures streams of the context. `settle` of other threads waits: its events would become part of the graph. That of
/// the thread itself does nothing.
class Capturing {
 public:
  explicit Capturing(CudaContext& context) : context_(context), lock_(context.capture_mutex_) {
    context_.capturing_ = std::this_thread::get_id();
  }
  ~Capturing() { context_.capturing_ = std::thread::id(); }
  Capturing(const Capturing&) = delete;

 private:
  CudaContext& context_;
  const std::lock_guard<std::mutex> lock_;
};

}  // namespace plait::cuda
