#pragma once
// A Device: the memory that programs run in, and the queues that do their work.
//
// The executor, the Store and the engines reach the bytes of arrays only through a Device. So one path serves the processor,
// whose memory is the host's and which does everything at once, and accelerators, for which neither holds. Queues and
// events are those of CUDA's streams.
#include <functional>
#include <memory>

#include "core/base/function_ref.h"
#include "core/comm/communicator.h"
#include "core/exec/kernel.h"

namespace plait {

/// Work in one queue is done in order; work of two queues is ordered only by events. Opaque: a device's own kernels and
/// communicators know what it is.
class Queue {
 public:
  virtual ~Queue() = default;
};

/// A point in a queue: all work that was put in before it.
struct QueueEvent {
  Queue* queue = nullptr;  ///< null: nothing to wait for
  int64_t number = 0;
  std::shared_ptr<void> handle;  ///< of an accelerator
};

/// Launches that were recorded instead of done, to be repeated. Addresses and sizes are those of the recording.
class Captured {
 public:
  virtual ~Captured() = default;
};

/// One rank has one. Unless stated otherwise, the rank's thread calls.
class Device {
 public:
  enum class Use { compute, copy, collective };

  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Which kernels it runs (Kernel::device).
  virtual DeviceKind kind() const = 0;
  /// Whether the host may read and write its arrays where they are.
  virtual bool shares_host_memory() const = 0;

  /// Zeroed memory, 64-byte aligned. Any thread may call. Throws Error(out_of_memory).
  virtual std::shared_ptr<Blob> take(int64_t bytes) = 0;
  virtual Queue& queue(Use use) = 0;

  // Moving bytes. Addresses named `host` are the host's, the others this device's. Nothing happens for 0 bytes.
  /// The host's bytes may change once this returns.
  virtual void write(Queue& queue, std::byte* to, const void* host, int64_t bytes) = 0;
  /// Returns when the bytes are there.
  virtual void read(Queue& queue, void* host, const std::byte* from, int64_t bytes) = 0;
  virtual void copy(Queue& queue, std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void fill(Queue& queue, std::byte* to, uint8_t value, int64_t bytes) = 0;
  /// As put_block and take_block of core/base/block.h.
  virtual void put_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) = 0;
  virtual void take_block(Queue& queue, const TensorView& whole, int dim, int64_t begin, const TensorView& part) = 0;

  /// Runs a kernel of this device's kind. What the data show goes into call.fault, at the latest when an event recorded
  /// after it is finished; the first fault stays.
  virtual void launch(Queue& queue, const Kernel& kernel, const KernelCall& call) = 0;
  /// What `kernel.output_shape` says of operands that have been computed.
  virtual Shape output_shape(Queue& queue, const Kernel& kernel, const KernelState* state,
                             std::span<const TensorView> inputs, int output) = 0;

  /// Puts `work` in the queue, which calls communicators and this device with that queue. The processor does the work of
  /// queue `collective` on a thread of its own; accelerators call it at once, since what it calls is put in the queue.
  virtual QueueEvent submit(Queue& queue, std::function<void()> work) = 0;
  virtual QueueEvent record(Queue& queue) = 0;
  /// What is put in `queue` from now on is done after the event. Throws what work before the event threw.
  virtual void wait(Queue& queue, const QueueEvent& event) = 0;
  /// Returns when the event is over. Throws what work before it threw.
  virtual void finish(const QueueEvent& event) = 0;
  /// Returns when the queue is empty; drops what its work threw.
  virtual void abandon(Queue& queue) noexcept = 0;

  /// Whether `capture` is possible.
  virtual bool captures() const { return false; }
  /// Records what `work` launches in the queue, without doing it.
  virtual std::unique_ptr<Captured> capture(Queue& queue, FunctionRef<void()> work);
  virtual void replay(Queue& queue, Captured& captured);

  /// The communicator of a group for arrays on this device, made from that of the host, on all its ranks at once.
  virtual std::unique_ptr<Communicator> communicator(std::unique_ptr<Communicator> host) { return host; }

  /// An array of the host's on this device: the array itself where memory is shared, otherwise a copy.
  Tensor upload(const Tensor& host);
  /// The array's bytes for the host to read: the array itself where memory is shared, otherwise a copy. That of a view does
  /// not keep shared memory alive.
  Tensor fetch(const Tensor& array);
  Tensor fetch(const TensorView& array);
  /// Overwrites an array: `fill` gets host memory of its dtype and shape, all of which it writes.
  void overwrite(const TensorView& array, FunctionRef<void(const TensorView& host)> fill);
};

/// The processor. `take` gives host memory.
std::shared_ptr<Device> make_host_device();
/// The device of a Store that is given none: the processor. Tests link another definition.
std::shared_ptr<Device> default_device();

}  // namespace plait
