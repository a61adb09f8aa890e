#pragma once
// A Device: an address space and its work queues.
//
// The executor, the Store and the engines access arrays only through a Device, so one code path serves both the
// processor (host memory, synchronous) and accelerators (own memory, asynchronous). Queues and events have the
// semantics of CUDA streams and events.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/function_ref.h"
#include "core/comm/communicator.h"
#include "core/exec/kernel.h"

namespace plait {

/// Work in one queue runs in order; work of two queues is ordered only by events. Opaque: the device's own kernels
/// and communicators cast it.
class Queue {
 public:
  virtual ~Queue() = default;
};

/// A point in a queue: all work submitted before it.
struct QueueEvent {
  Queue* queue = nullptr;  ///< null: nothing to wait for
  int64_t number = 0;
  std::shared_ptr<void> handle;  ///< accelerators only
};

/// Launches recorded for replay (a CUDA graph). Addresses and sizes are those of the recording.
class Captured {
 public:
  virtual ~Captured() = default;
};

/// A device's own memory, in bytes.
struct DeviceMemoryInfo {
  int64_t free = 0, total = 0;
  std::string id;    ///< equal for ranks that share the device, also those of several processes
  std::string name;  ///< for messages: "CUDA device 0"
};

/// One per rank. Called by the rank's thread unless stated otherwise.
class Device {
 public:
  enum class Use { compute, copy, collective };

  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// The kind of kernels it runs (Kernel::device).
  virtual DeviceKind kind() const = 0;
  /// Whether the host can access its arrays directly.
  virtual bool shares_host_memory() const = 0;

  /// Zeroed memory, 64-byte aligned. Any thread may call. Throws Error(out_of_memory).
  virtual std::shared_ptr<Blob> take(int64_t bytes) = 0;
  /// What `take` can take of now; none if the memory is the process's, or not known. Throws what its driver reports.
  virtual std::optional<DeviceMemoryInfo> memory() { return std::nullopt; }
  /// Bytes of an array in the packed layout of that name (PackedLayout) of the device's kernels; "": plain.
  virtual int64_t array_bytes(std::string_view layout, DType dtype, const Shape& shape) const;
  virtual Queue& queue(Use use) = 0;

  // Copies. Pointers named `host` are host memory, the others device memory. 0 bytes: no effect.
  /// The host buffer may be reused after return.
  virtual void write(Queue& queue, std::byte* to, const void* host, int64_t bytes) = 0;
  /// Blocks until the copy is complete.
  virtual void read(Queue& queue, void* host, const std::byte* from, int64_t bytes) = 0;
  virtual void copy(Queue& queue, std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void fill(Queue& queue, std::byte* to, uint8_t value, int64_t bytes) = 0;
  /// As put_block and take_block of core/base/block.h.
  virtual void put_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) = 0;
  virtual void take_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) = 0;

  /// Runs a kernel of this device's kind. Data-dependent faults are written to call.fault, at the latest when an
  /// event recorded after the launch has finished; the first fault is kept.
  virtual void launch(Queue& queue, const Kernel& kernel, const KernelCall& call) = 0;
  /// Calls `kernel.output_shape` on computed operands.
  virtual Shape output_shape(Queue& queue, const Kernel& kernel, const KernelState* state,
                             std::span<const TensorView> inputs, int output) = 0;

  /// Submits `work`, which calls communicators and this device with that queue. The processor runs work of queue
  /// `collective` on its own thread; accelerators call it immediately, since what it calls is itself enqueued.
  virtual QueueEvent submit(Queue& queue, std::function<void()> work) = 0;
  virtual QueueEvent record(Queue& queue) = 0;
  /// Work submitted to `queue` later runs after the event. Rethrows what work before the event threw.
  virtual void wait(Queue& queue, const QueueEvent& event) = 0;
  /// Blocks until the event has completed. Rethrows what work before it threw.
  virtual void finish(const QueueEvent& event) = 0;
  /// Blocks until the queue is empty; discards exceptions of its work.
  virtual void abandon(Queue& queue) noexcept = 0;

  /// Whether `capture` is supported.
  virtual bool captures() const { return false; }
  /// Records what `work` launches in the queue without running it.
  virtual std::unique_ptr<Captured> capture(Queue& queue, FunctionRef<void()> work);
  virtual void replay(Queue& queue, Captured& captured);

  /// Makes the communicator of a group for arrays on this device from the host's. Collective over the group's ranks.
  virtual std::unique_ptr<Communicator> communicator(std::unique_ptr<Communicator> host) { return host; }

  // In the compute queue, in order with the work of programs.
  /// Copies a host array to this device; returns the array itself where memory is shared.
  Tensor upload(const Tensor& host);
  /// Copies an array to the host; returns the array itself where memory is shared. For a TensorView, the result does
  /// not keep shared memory alive.
  Tensor fetch(const Tensor& array);
  Tensor fetch(const TensorView& array);
  /// Overwrites an array: `fill` gets host memory of its dtype and shape and must write all of it.
  void overwrite(const TensorView& array, FunctionRef<void(const TensorView& host)> fill);
};

/// Makes the device of a rank. Any thread. Throws Error(unsupported) if there is no such device.
using DeviceMaker = std::function<std::shared_ptr<Device>(int64_t rank)>;

/// The processor. `take` returns host memory.
std::shared_ptr<Device> make_host_device();
/// The default device of a Store: the processor. Tests link another definition.
std::shared_ptr<Device> default_device();

}  // namespace plait
