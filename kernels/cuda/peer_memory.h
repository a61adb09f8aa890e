#pragma once
// Memory of devices that the ranks of a group write into from theirs: devices of one process (peer access), or of several processes of
// one machine (CUDA's IPC handles).
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/mapping.h"
#include "core/exec/device.h"
#include "kernels/cuda/cuda_context.h"

namespace plait::cuda {

/// A buffer of each rank for each queue that has collectives, filled with zeros. All ranks have one, or none.
class PeerMemory {
 public:
  /// Collectives of one queue are in order; another queue has buffers and numbers of its own.
  static constexpr int channels = 2;

  /// Collective over `host`. Null on all ranks where one of them cannot access the memory of another: `refusal` is then the first such
  /// rank's reason. `device` is the context's, and outlives the call.
  static std::unique_ptr<PeerMemory> connect(const std::shared_ptr<CudaContext>& context, Device& device,
                                             const std::shared_ptr<Communicator>& host, std::string& refusal);
  /// Nothing on this rank's device may wait for other ranks any longer. Waits up to 2 s until other processes have closed this rank's
  /// buffers, since memory that another process has open may not be freed; what they keep open, or have open when the world fails, is
  /// freed by the driver when the process ends.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;

  /// The address on this rank's device.
  std::byte* buffer(int rank, int channel) const { return buffers_[static_cast<size_t>(rank)][channel]; }

 private:
  struct Card;
  struct Handles;
  using Buffers = std::array<std::byte*, channels>;

  PeerMemory(std::shared_ptr<CudaContext> context, std::shared_ptr<Communicator> host)
      : context_(std::move(context)), host_(std::move(host)), buffers_(static_cast<size_t>(host_->size())) {}

  std::string meet_processes(const std::vector<Card>& cards);
  std::string enable_access(const std::vector<Card>& cards) const;
  std::string make_handles(Handles& out);
  std::string open_handles(const std::vector<Card>& cards, const std::vector<Handles>& handles);
  std::string agreed(std::string_view own_refusal) const;

  const std::shared_ptr<CudaContext> context_;
  const std::shared_ptr<Communicator> host_;
  std::array<std::shared_ptr<Blob>, channels> own_;
  /// Buffers of ranks of this process: none is freed while another rank may write to it.
  std::vector<std::shared_ptr<Blob>> shared_;
  std::vector<DevicePtr> opened_;  ///< of other processes
  std::vector<Buffers> buffers_;   ///< by rank
  bool exported_ = false;          ///< other processes may have opened this rank's buffers
  /// An atomic i32: ranks that have closed all others' buffers. Null in one process.
  std::shared_ptr<Mapping> ended_;
};

}  // namespace plait::cuda
