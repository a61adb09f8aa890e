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

/// What the kernels reduce; bytes: they do not.
PeerElement element_of(DType dtype) {
  return dtype == DType::f32    ? PeerElement::f32
         : dtype == DType::bf16 ? PeerElement::bf16
         : dtype == DType::f16  ? PeerElement::f16
                                : PeerElement::bytes;
}
PeerReduction peer_reduction(Reduction reduction) {
  return reduction == Reduction::sum   ? PeerReduction::sum
         : reduction == Reduction::max ? PeerReduction::max
                                       : PeerReduction::min;
}

int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool begins_line(const void* at) { return reinterpret_cast<uintptr_t>(at) % peer_line == 0; }

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
  for (std::shared_ptr<Blob>& one : own) one = device().take(peer_buffer_bytes(size()));
  const std::vector<PeerCard> all =
      gathered<PeerCard>(host(), {context().handle(), own.data(), getpid(), context().device()});
  for (const PeerCard& one : all) buffers_.insert(buffers_.end(), one.buffers, one.buffers + channels);
  host().barrier();  // `own` is read by the others
}

PeerCommunicator::~PeerCommunicator() { PeerCommunicator::stop(); }

void PeerCommunicator::stop() noexcept {
  std::atomic_ref(*reinterpret_cast<int32_t*>(stop_->mutable_data())).store(1);
}

PeerOperands PeerCommunicator::operands(const std::byte* in, std::byte* out) const {
  const size_t channel = &queue() == &device().queue(Device::Use::compute) ? 0 : 1;
  PeerOperands o{};
  o.in = reinterpret_cast<const uint8_t*>(in), o.out = reinterpret_cast<uint8_t*>(out);
  for (int rank = 0; rank < size(); ++rank)
    o.buffers[rank] =
        reinterpret_cast<uint8_t*>(buffers_[static_cast<size_t>(rank) * channels + channel]->mutable_data());
  o.own = o.buffers[rank()];
  o.stop = reinterpret_cast<const int32_t*>(stop_->data());
  o.rank = rank(), o.ranks = size();
  return o;
}

void PeerCommunicator::launch(const char* kernel, int64_t blocks, int rows, const PeerOperands& operands) const {
  const Extent grid{static_cast<unsigned>(blocks), static_cast<unsigned>(rows)}, block{peer_threads};
  static_cast<CudaQueue&>(queue()).launch(kernel, grid, block, 0, operands);
}

void PeerCommunicator::all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) {
  const PeerElement element = element_of(in.dtype);
  if (buffers_.empty() || element == PeerElement::bytes) return NcclCommunicator::all_reduce_into(in, out, reduction);
  stream();  // throws where the group has ended
  for (int64_t at = 0; at < in.bytes(); at += peer_lines * peer_line) {
    PeerOperands o = operands(in.data + at, out.data + at);
    o.bytes = std::min(in.bytes() - at, peer_lines * peer_line);
    o.element = element, o.reduction = peer_reduction(reduction);
    if (o.bytes <= peer_words * 4) {
      const int64_t blocks = divided(divided(o.bytes, 4), peer_threads);
      launch("peer_write", blocks, 1, o);
      launch("peer_sum", blocks, 1, o);
      continue;
    }
    const int64_t lines = divided(divided(o.bytes, peer_line), size()), blocks = divided(lines, peer_threads);
    o.chunk = o.stride = lines * peer_line;
    o.gives = 1, o.aligned = begins_line(o.in) && begins_line(o.out);
    launch("peer_scatter", blocks, size() - 1, o);
    launch("peer_combine", blocks, 1, o);
    launch("peer_collect", blocks, size() - 1, o);
  }
}

void PeerCommunicator::all_gather(const TensorView& part, const TensorView& all) {
  if (buffers_.empty()) return NcclCommunicator::all_gather(part, all);
  stream();
  const int64_t most = peer_lines / size() * peer_line;
  for (int64_t at = 0; at < part.bytes(); at += most) {
    PeerOperands o = operands(part.data + at, all.data + at);
    o.chunk = std::min(part.bytes() - at, most), o.stride = part.bytes();
    o.bytes = (size() - 1) * o.stride + o.chunk;
    o.element = PeerElement::bytes;
    o.gives = 1, o.aligned = begins_line(o.in) && begins_line(o.out) && o.stride % peer_line == 0;
    const int64_t blocks = divided(divided(o.chunk, peer_line), peer_threads);
    launch("peer_combine", blocks, 1, o);
    launch("peer_collect", blocks, size() - 1, o);
  }
}

void PeerCommunicator::reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) {
  const PeerElement element = element_of(all.dtype);
  if (buffers_.empty() || element == PeerElement::bytes)
    return NcclCommunicator::reduce_scatter(all, part, reduction);
  stream();
  const int64_t most = peer_lines / size() * peer_line;
  for (int64_t at = 0; at < part.bytes(); at += most) {
    PeerOperands o = operands(all.data + at, part.data + at);
    o.chunk = std::min(part.bytes() - at, most), o.stride = part.bytes();
    o.bytes = (size() - 1) * o.stride + o.chunk;
    o.element = element, o.reduction = peer_reduction(reduction);
    o.aligned = begins_line(o.in) && begins_line(o.out) && o.stride % peer_line == 0;
    const int64_t blocks = divided(divided(o.chunk, peer_line), peer_threads);
    launch("peer_scatter", blocks, size() - 1, o);
    launch("peer_combine", blocks, 1, o);
  }
}

}  // namespace plait::cuda
