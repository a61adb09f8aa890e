#pragma once
// What kernels' launch code sees of a CUDA device: a queue to launch in.
#include <array>
#include <string>
#include <utility>

#include "core/exec/device.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/fault_word.h"

namespace plait::cuda {

struct PeerOperands;
struct PeerRanks;

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// A stream. Used by the rank's thread.
class CudaQueue : public Queue {
 public:
  /// The queue of a call, in Kernel::run of a kernel for cuda.
  static CudaQueue& of(const KernelCall& call) { return static_cast<CudaQueue&>(*call.queue); }

  virtual Stream stream() const = 0;
  /// Address on the device of the fault word.
  virtual FaultWord* fault_word() const = 0;

  /// Enqueues the kernel of that extern "C" name. `parameters` have exactly the types of the kernel's. `shared_bytes`: dynamic shared
  /// memory of a block. What the driver refuses is thrown by Device::launch after `run` has returned.
  template <class... P>
  KernelStatus launch(const char* kernel, Extent grid, Extent block, unsigned shared_bytes, const P&... parameters) {
    std::array<void*, sizeof...(P)> addresses{const_cast<void*>(static_cast<const void*>(&parameters))...};
    enqueue(kernel, grid, block, shared_bytes, addresses.data());
    return {};
  }

  /// A sum of ranks that the next kernel makes of an operand (Communicator::sum_into), which it takes. Null: none.
  void give_sum(const PeerOperands* sum) { sum_ = sum; }
  const PeerOperands* take_sum() { return std::exchange(sum_, nullptr); }
  /// The ranks to which the next kernel may write its result too (Communicator::begin_sum): one that does takes them. Null: none.
  void give_ranks(const PeerRanks* ranks) { ranks_ = ranks; }
  const PeerRanks* take_ranks() { return std::exchange(ranks_, nullptr); }

 private:
  /// `parameters`: an address each. Does not throw.
  virtual void enqueue(const char* kernel, Extent grid, Extent block, unsigned shared_bytes, void** parameters) = 0;

  const PeerOperands* sum_ = nullptr;
  const PeerRanks* ranks_ = nullptr;
};

}  // namespace plait::cuda
