#pragma once
// Collectives between devices that write into each other's memory.
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/peer_sums.h"
#include "kernels/cuda/staged_communicator.h"

namespace plait::cuda {

/// Reductions of f32, f16 and bf16 go by kernels (peer_sums.h), in ascending order of ranks with one rounding, so that they have the bits
/// of the host's; all_gather does too. All else is another communicator's.
class PeerCommunicator : public StagedCommunicator, private DeviceGroup {
 public:
  /// `others` is of the same ranks. It is one of the context's groups while it exists.
  PeerCommunicator(std::shared_ptr<CudaContext> context, Device& device, std::function<Queue&()> queue,
                   std::shared_ptr<Communicator> host, std::unique_ptr<PeerMemory> memory,
                   std::unique_ptr<StagedCommunicator> others);
  ~PeerCommunicator() override;

  std::string transport() const override { return "peer memory"; }

  void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) override;
  /// Both of f32, up to the size that goes in one step.
  void begin_sum(const TensorView& part, FunctionRef<void()> launch) override;
  bool sum_into(const TensorView& part, FunctionRef<void()> launch) override;
  void all_gather(const TensorView& part, const TensorView& all) override;
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override;
  void all_to_all(const TensorView& from, const TensorView& to) override { others_->all_to_all(from, to); }
  void broadcast(const TensorView& data, int root) override { others_->broadcast(data, root); }
  bool captures(CollectiveKind kind, DType dtype) const override;

 private:
  void check() override;
  void note_wait(double waited_s) noexcept override { note_device_wait(waited_s); }
  void stop() noexcept override;
  /// Throws Error(closed) if the group has ended.
  void enter() const;
  int channel() const { return &queue() == &device().queue(Device::Use::compute) ? 0 : 1; }
  /// Whether the other ranks get `part` from the kernel that made it. Throws if they get another array for this sum.
  bool take_begun(const std::byte* part);
  PeerOperands operands(const std::byte* in, std::byte* out) const;
  void launch(const char* kernel, int64_t blocks, int rows, const PeerOperands& operands) const;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<Blob> stop_;  ///< an i32 in pinned memory
  const std::unique_ptr<PeerMemory> memory_;
  const std::unique_ptr<StagedCommunicator> others_;
  /// Of the next sum in that channel, which the kernel of `part` writes to the other ranks; null: no kernel does.
  struct Begun {
    const std::byte* part = nullptr;
    int channel = 0;
  };
  Begun begun_;
};

}  // namespace plait::cuda
