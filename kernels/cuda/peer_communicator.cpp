#include "kernels/cuda/peer_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace plait::cuda {
namespace {

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
bool goes_by_words(const TensorView& part) { return part.dtype == DType::f32 && part.bytes() <= peer_words * 4; }

}  // namespace

PeerCommunicator::PeerCommunicator(std::shared_ptr<CudaContext> context, Device& device,
                                   std::function<Queue&()> queue, std::shared_ptr<Communicator> host_group,
                                   std::unique_ptr<PeerMemory> memory, std::unique_ptr<StagedCommunicator> others)
    : StagedCommunicator(device, std::move(queue), std::move(host_group)),
      context_(std::move(context)),
      stop_(context_->take_pinned(sizeof(int32_t))),
      memory_(std::move(memory)),
      others_(std::move(others)) {
  std::memset(stop_->mutable_data(), 0, sizeof(int32_t));
  context_->add(*this);
}

PeerCommunicator::~PeerCommunicator() {
  context_->remove(*this);
  PeerCommunicator::stop();
}

void PeerCommunicator::stop() noexcept {
  std::atomic_ref(*reinterpret_cast<int32_t*>(stop_->mutable_data())).store(1);
}

void PeerCommunicator::check() {
  if (host().failed_rank() < 0) return;
  stop();
  host().barrier();  // throws what ended the world
}

void PeerCommunicator::enter() const {
  if (std::atomic_ref(*reinterpret_cast<int32_t*>(stop_->mutable_data())).load())
    throw Error(Code::closed, "the group of devices has ended after an error");
  context_->enter();
}

bool PeerCommunicator::captures(CollectiveKind kind, DType dtype) const {
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
  if (kind == CollectiveKind::all_gather || (reduces && element_of(dtype) != PeerElement::bytes)) return true;
  return others_->captures(kind, dtype);
}

PeerOperands PeerCommunicator::operands(const std::byte* in, std::byte* out) const {
  PeerOperands o{};
  o.in = reinterpret_cast<const uint8_t*>(in), o.out = reinterpret_cast<uint8_t*>(out);
  for (int rank = 0; rank < size(); ++rank)
    o.buffers[rank] = reinterpret_cast<uint8_t*>(memory_->buffer(rank, channel()));
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
  if (element == PeerElement::bytes) return others_->all_reduce_into(in, out, reduction);
  enter();
  const bool begun = take_begun(reduction == Reduction::sum ? in.data : nullptr);  // then it is one piece, of words
  for (int64_t at = 0; at < in.bytes(); at += peer_lines * peer_line) {
    PeerOperands o = operands(in.data + at, out.data + at);
    o.bytes = std::min(in.bytes() - at, peer_lines * peer_line);
    o.element = element, o.reduction = peer_reduction(reduction);
    if (o.bytes <= peer_words * 4) {
      const int64_t blocks = divided(divided(o.bytes, 4), peer_threads);
      if (!begun) launch("peer_write", blocks, 1, o);
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

bool PeerCommunicator::take_begun(const std::byte* part) {
  const Begun begun = std::exchange(begun_, {});
  if (begun.part && (begun.part != part || begun.channel != channel()))
    throw Error(Code::internal, "a kernel has written another array for this sum of ranks");
  return begun.part != nullptr;
}

void PeerCommunicator::begin_sum(const TensorView& part, FunctionRef<void()> launch_next) {
  if (!part.bytes() || !goes_by_words(part)) return launch_next();
  enter();
  take_begun(nullptr);
  const PeerOperands o = operands(part.data, nullptr);
  auto& own = static_cast<CudaQueue&>(queue());
  own.give_ranks(&o);
  try {
    launch_next();
  } catch (...) {
    own.take_ranks();
    throw;
  }
  if (!own.take_ranks()) begun_ = {part.data, channel()};
}

bool PeerCommunicator::sum_into(const TensorView& part, FunctionRef<void()> launch_next) {
  if (!goes_by_words(part)) return false;
  enter();
  const bool begun = take_begun(part.data);
  PeerOperands o = operands(part.data, nullptr);
  o.bytes = part.bytes(), o.element = PeerElement::f32, o.reduction = PeerReduction::sum;
  if (o.bytes && !begun) launch("peer_write", divided(divided(o.bytes, 4), peer_threads), 1, o);
  auto& own = static_cast<CudaQueue&>(queue());
  own.give_sum(&o);
  try {
    launch_next();
  } catch (...) {
    own.take_sum();
    throw;
  }
  if (own.take_sum() && o.bytes)
    throw Error(Code::internal, "a kernel has not taken the sum of ranks that it was given");
  return true;
}

void PeerCommunicator::all_gather(const TensorView& part, const TensorView& all) {
  enter();
  take_begun(nullptr);
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
  if (element == PeerElement::bytes) return others_->reduce_scatter(all, part, reduction);
  enter();
  take_begun(nullptr);
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
