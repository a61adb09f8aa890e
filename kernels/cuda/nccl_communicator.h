#pragma once
// Collectives of arrays on devices by NCCL.
#include <mutex>
#include <thread>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/staged_communicator.h"

namespace plait::cuda {

/// Whether NCCL can connect the ranks: all have it, and a device of their own. Collective over `host`.
bool nccl_connects(const CudaContext& context, Communicator& host);

/// Calls enqueue and return. NCCL does not promise an order of its sums: the bits of reductions may depend on sizes, and max and min
/// need not propagate NaN, unlike the host's. Types that NCCL does not reduce, and `send` and `recv`, go through host memory.
/// The destructor waits for nothing. A captured call is NCCL's to record: launches of its graph are then calls of the group.
class NcclCommunicator : public StagedCommunicator, private DeviceGroup {
 public:
  /// Collective over the ranks of `host`, which nccl_connects. It is one of the context's groups while it exists.
  NcclCommunicator(std::shared_ptr<CudaContext> context, Device& device, std::function<Queue&()> queue,
                   std::shared_ptr<Communicator> host);
  ~NcclCommunicator() override;

  std::string transport() const override { return "NCCL" + refusal(); }

  void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) override;
  void all_gather(const TensorView& part, const TensorView& all) override;
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override;
  void all_to_all(const TensorView& from, const TensorView& to) override;
  void broadcast(const TensorView& data, int root) override;
  /// What does not go through host memory.
  bool captures(CollectiveKind kind, DType dtype) const override;

 private:
  /// NCCL's error, or Error(closed) if the world is over.
  void check() override;
  void note_wait(double waited_s) noexcept override { note_device_wait(waited_s); }
  void stop() noexcept override;
  const Nccl& nccl() const { return *context_->libraries().nccl; }
  /// As `check`; whether a call of the group is still in progress.
  bool in_progress();
  /// Calls the function and waits while it is in progress, as far as no rank fails.
  template <class... P, class... A>
  void call(const LibraryFunction<NcclStatus(P...)>& function, A... arguments) {
    const std::lock_guard lock(calls_);
    const NcclStatus status = function(arguments...);
    if (status != nccl_success && status != nccl_in_progress) nccl().fail(status, function.name, comm_);
    while (status == nccl_in_progress && in_progress()) std::this_thread::yield();
  }
  /// Calls a function whose last parameters are the communicator and a stream, with those of the group and of the present queue. Throws
  /// Error(closed) if the group has ended.
  template <class... P, class... A>
  void enqueue(const LibraryFunction<NcclStatus(P...)>& function, A... arguments) {
    const std::lock_guard lock(calls_);  // before the communicator is read: another thread's wait may end the group
    check_open();
    context_->enter();
    call(function, arguments..., comm_, static_cast<CudaQueue&>(queue()).stream());
  }
  void check_open() const;

  const std::shared_ptr<CudaContext> context_;
  std::recursive_mutex calls_;  ///< one thread at a time calls functions of a communicator
  NcclComm comm_ = nullptr;     ///< null once the group has ended; with the lock
};

}  // namespace plait::cuda
