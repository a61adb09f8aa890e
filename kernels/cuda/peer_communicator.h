#pragma once
// Collectives between devices of one process, which write into each other's memory.
#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

/// Reductions of f32, f16 and bf16 go by kernels (peer_sums.h), in ascending order of ranks with one rounding, so that they have the bits
/// of the host's; all_gather does too. All else is NCCL's.
class PeerCommunicator : public NcclCommunicator {
 public:
  /// As NcclCommunicator's. Where ranks are other processes, or a device cannot access another, everything is NCCL's.
  PeerCommunicator(std::shared_ptr<CudaContext> context, Device& device, std::function<Queue&()> queue,
                   std::unique_ptr<Communicator> host, std::shared_ptr<NcclGroups> groups);

  ~PeerCommunicator() override;

  void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) override;
  void all_gather(const TensorView& part, const TensorView& all) override;
  void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) override;
  /// Whether the ranks access each other's memory.
  bool has_peers() const { return !buffers_.empty(); }

 protected:
  void stop() noexcept override;

 private:
  bool enables_peers();
  void exchange_buffers();
  PeerOperands operands(const std::byte* in, std::byte* out) const;
  void launch(const char* kernel, int64_t blocks, int rows, const PeerOperands& operands) const;

  /// Collectives of one queue are in order; another queue has buffers and numbers of its own.
  static constexpr int channels = 2;
  const std::shared_ptr<Blob> stop_;  ///< an i32 in pinned memory
  /// By rank and channel, of all ranks: none is freed while another rank may write to it. Empty without peers.
  std::vector<std::shared_ptr<Blob>> buffers_;
};

}  // namespace plait::cuda
