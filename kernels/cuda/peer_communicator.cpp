#include "kernels/cuda/peer_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace plait::cuda {
namespace {

/// What a rank tells the others.
struct PeerCard {
  Context context;
  const std::shared_ptr<Blob>* buffers;  ///< in the memory of the process
  int64_t process;
  int64_t device;
};

template <class T>
std::vector<T> gathered(Communicator& host, const T& own) {
  std::vector<T> out(static_cast<size_t>(host.size()));
  const auto view = [](const T* values, size_t count) {
    return TensorView{
        reinterpret_cast<std::byte*>(const_cast<T*>(values)), DType::u8, {static_cast<int64_t>(count * sizeof(T))}};
  };
  host.all_gather(view(&own, 1), view(out.data(), out.size()));
  return out;
}

bool all_ranks(Communicator& host, bool own) {
  const std::vector<uint8_t> all = gathered<uint8_t>(host, own);
  return std::all_of(all.begin(), all.end(), [](uint8_t one) { return one != 0; });
}

}  // namespace

PeerCommunicator::PeerCommunicator(std::shared_ptr<CudaContext> context, Device& device,
                                   std::function<Queue&()> queue, std::unique_ptr<Communicator> host_group,
                                   std::shared_ptr<NcclGroups> groups)
    : NcclCommunicator(context, device, std::move(queue), std::move(host_group), std::move(groups)),
      stop_(context->take_pinned(sizeof(int32_t))) {
  std::memset(stop_->mutable_data(), 0, sizeof(int32_t));
  if (enables_peers()) exchange_buffers();
}

/// Whether all ranks are of this process and can access each other's devices, which they do then.
bool PeerCommunicator::enables_peers() {
  const CudaDriver& driver = context().driver();
  const std::vector<PeerCard> all =
      gathered<PeerCard>(host(), {context().handle(), nullptr, getpid(), context().device()});
  bool can = size() <= most_peers;
  for (const PeerCard& one : all) {
    if (!can || one.device == context().device()) continue;
    int possible = 0;
    can =
        one.process == getpid() &&
        driver.peer_possible(&possible, context().device(), static_cast<DeviceNumber>(one.device)) == cuda_success &&
        possible;
  }
  if (!all_ranks(host(), can)) return false;
  context().enter();
  for (const PeerCard& one : all) {
    if (one.device == context().device()) continue;
    const Status status = driver.peer_enable(one.context, 0U);
    can = can && (status == cuda_success || status == cuda_peer_access_already_enabled);
  }
  return all_ranks(host(), can);
}

void PeerCommunicator::exchange_buffers() {
  std::array<std::shared_ptr<Blob>, channels> own;
  for (std::shared_ptr<Blob>& one : own)
    one = device().take(static_cast<int64_t>(sizeof(uint64_t)) * peer_slots * size() * peer_elements);
  const std::vector<PeerCard> all =
      gathered<PeerCard>(host(), {context().handle(), own.data(), getpid(), context().device()});
  for (const PeerCard& one : all) buffers_.insert(buffers_.end(), one.buffers, one.buffers + channels);
  host().barrier();  // `own` is read by the others
}

PeerCommunicator::~PeerCommunicator() { PeerCommunicator::stop(); }

void PeerCommunicator::stop() noexcept {
  std::atomic_ref(*reinterpret_cast<int32_t*>(stop_->mutable_data())).store(1);
}

void PeerCommunicator::all_reduce(const TensorView& data, Reduction reduction) {
  if (buffers_.empty() || data.dtype != DType::f32 || data.elements() > peer_elements)
    return NcclCommunicator::all_reduce(data, reduction);
  if (!data.elements()) return;
  stream();  // throws where the group has ended
  const size_t channel = &queue() == &device().queue(Device::Use::compute) ? 0 : 1;
  PeerSumOperands o{};
  o.data = reinterpret_cast<float*>(data.data);
  for (int rank = 0; rank < size(); ++rank)
    o.buffers[rank] =
        reinterpret_cast<uint64_t*>(buffers_[static_cast<size_t>(rank) * channels + channel]->mutable_data());
  o.own = o.buffers[rank()];
  o.stop = reinterpret_cast<const int32_t*>(stop_->data());
  o.count = data.elements(), o.rank = rank(), o.ranks = size();
  if (++numbers_[channel] == 0) ++numbers_[channel];  // 0 is what buffers begin with
  o.number = numbers_[channel];
  o.reduction = reduction == Reduction::sum   ? PeerReduction::sum
                : reduction == Reduction::max ? PeerReduction::max
                                              : PeerReduction::min;
  auto& to = static_cast<CudaQueue&>(queue());
  const Extent grid{static_cast<unsigned>((o.count + peer_threads - 1) / peer_threads)}, block{peer_threads};
  to.launch("peer_write", grid, block, 0, o);
  to.launch("peer_sum", grid, block, 0, o);
}

}  // namespace plait::cuda
