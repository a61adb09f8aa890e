#pragma once
// Small sums between devices of one process, which write into each other's memory.
#include <array>

#include "kernels/cuda/cuda_queue.h"
#include "kernels/cuda/nccl_communicator.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

/// all_reduce of up to peer_elements f32 goes in ascending order of ranks, by kernels (peer_sums.h); all else is NCCL's.
class PeerCommunicator : public NcclCommunicator {
 public:
  /// As NcclCommunicator's. Where ranks are other processes, or a device cannot access another, everything is NCCL's.
  PeerCommunicator(std::shared_ptr<CudaContext> context, Device& device, std::function<Queue&()> queue,
                   std::unique_ptr<Communicator> host, std::shared_ptr<NcclGroups> groups);

  ~PeerCommunicator() override;

  void all_reduce(const TensorView& data, Reduction reduction) override;
  /// Whether the ranks access each other's memory.
  bool has_peers() const { return !buffers_.empty(); }

 protected:
  void stop() noexcept override;

 private:
  bool enables_peers();
  void exchange_buffers();

  /// Sums of one queue are in order; another queue has buffers and numbers of its own.
  static constexpr int channels = 2;
  const std::shared_ptr<Blob> stop_;  ///< an i32 in pinned memory
  /// By rank and channel, of all ranks: none is freed while another rank may write to it. Empty without peers.
  std::vector<std::shared_ptr<Blob>> buffers_;
  std::array<uint32_t, channels> numbers_{};  ///< of the last sum
};

}  // namespace plait::cuda
