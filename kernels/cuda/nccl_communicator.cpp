#include "kernels/cuda/nccl_communicator.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cuda/gathered.h"

namespace plait::cuda {
namespace {

/// The type of which NCCL makes sums; none for others.
std::optional<NcclType> reducible(DType dtype) {
  switch (dtype) {
    case DType::i8: return NcclType::i8;
    case DType::u8: return NcclType::u8;
    case DType::i32: return NcclType::i32;
    case DType::u32: return NcclType::u32;
    case DType::i64: return NcclType::i64;
    case DType::u64: return NcclType::u64;
    case DType::f16: return NcclType::f16;
    case DType::f32: return NcclType::f32;
    case DType::f64: return NcclType::f64;
    case DType::bf16: return NcclType::bf16;
    default: return std::nullopt;
  }
}

NcclReduction nccl_reduction(Reduction reduction) {
  return reduction == Reduction::sum   ? NcclReduction::sum
         : reduction == Reduction::max ? NcclReduction::max
                                       : NcclReduction::min;
}

size_t count(int64_t number) { return static_cast<size_t>(number); }

}  // namespace

bool nccl_connects(const CudaContext& context, Communicator& host) {
  struct Rank {
    DeviceId device;
    int32_t has_nccl, one_process;
    uint64_t process;
  };
  Rank own{};
  context.driver().call(context.driver().device_id, &own.device, context.device());
  own.has_nccl = context.libraries().nccl.has_value();
  own.one_process = context.libraries().nccl_of_one_process;
  own.process = process_identity();
  const std::vector<Rank> all = gathered(host, own);
  std::set<std::string> devices;
  for (const Rank& rank : all) devices.emplace(rank.device.bytes, sizeof rank.device.bytes);
  return all.size() > 1 && devices.size() == all.size() && std::all_of(all.begin(), all.end(), [&](const Rank& rank) {
           return rank.has_nccl && (!rank.one_process || rank.process == all[0].process);
         });
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<CudaContext> context, Device& device,
                                   std::function<Queue&()> queue, std::shared_ptr<Communicator> host_group)
    : StagedCommunicator(device, std::move(queue), std::move(host_group)), context_(std::move(context)) {
  context_->enter();
  NcclId id{};
  if (rank() == 0) nccl().call(nullptr, nccl().ncclGetUniqueId, &id);
  host().broadcast({reinterpret_cast<std::byte*>(&id), DType::u8, {static_cast<int64_t>(sizeof id)}}, 0);
  NcclConfig config;
  try {
    call(nccl().ncclCommInitRankConfig, &comm_, size(), id, rank(), &config);
  } catch (...) {
    NcclCommunicator::stop();
    throw;
  }
  context_->add(*this);
}

/// Destroying would wait for the other ranks, which may have ended.
NcclCommunicator::~NcclCommunicator() {
  context_->remove(*this);
  NcclCommunicator::stop();
}

void NcclCommunicator::stop() noexcept {
  const std::lock_guard lock(calls_);
  if (!comm_) return;
  context_->driver().context_set(context_->handle());
  nccl().ncclCommAbort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::check_open() const {
  if (!comm_) throw Error(Code::closed, "the group of devices has ended after an error");
}

void NcclCommunicator::check() { in_progress(); }

bool NcclCommunicator::in_progress() {
  const std::lock_guard lock(calls_);
  if (!comm_) return false;
  NcclStatus status = nccl_success;
  nccl().call(comm_, nccl().ncclCommGetAsyncError, comm_, &status);
  const int failed = host().failed_rank();
  if ((status == nccl_success || status == nccl_in_progress) && failed < 0) return status == nccl_in_progress;
  const std::string words = nccl().text(status, comm_);
  stop();
  if (failed >= 0) host().barrier();  // throws what ended the world
  throw Error(Code::io, cat("NCCL: ", words));
}

void NcclCommunicator::all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) {
  const auto type = reducible(in.dtype);
  if (!type) return StagedCommunicator::all_reduce_into(in, out, reduction);
  if (!in.elements()) return;
  enqueue(nccl().ncclAllReduce, static_cast<const void*>(in.data), static_cast<void*>(out.data), count(in.elements()),
          *type, nccl_reduction(reduction));
}

void NcclCommunicator::all_gather(const TensorView& part, const TensorView& all) {
  if (!part.bytes()) return;
  enqueue(nccl().ncclAllGather, static_cast<const void*>(part.data), static_cast<void*>(all.data),
          count(part.bytes()), NcclType::u8);
}

void NcclCommunicator::reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) {
  const auto type = reducible(all.dtype);
  if (!type) return StagedCommunicator::reduce_scatter(all, part, reduction);
  if (!part.elements()) return;
  enqueue(nccl().ncclReduceScatter, static_cast<const void*>(all.data), static_cast<void*>(part.data),
          count(part.elements()), *type, nccl_reduction(reduction));
}

void NcclCommunicator::all_to_all(const TensorView& from, const TensorView& to) {
  const int64_t bytes = from.bytes() / size();
  if (!bytes) return;
  if (from.data == to.data) return StagedCommunicator::all_to_all(from, to);  // sends would overtake receives
  const std::lock_guard lock(calls_);
  call(nccl().ncclGroupStart);
  try {
    for (int peer = 0; peer < size(); ++peer) {
      enqueue(nccl().ncclSend, static_cast<const void*>(from.data + peer * bytes), count(bytes), NcclType::u8, peer);
      enqueue(nccl().ncclRecv, static_cast<void*>(to.data + peer * bytes), count(bytes), NcclType::u8, peer);
    }
  } catch (...) {
    nccl().ncclGroupEnd();  // the thread's later calls would be of this group
    throw;
  }
  call(nccl().ncclGroupEnd);
}

bool NcclCommunicator::captures(CollectiveKind kind, DType dtype) const {
  const bool reduces = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
  return !reduces || reducible(dtype);
}

void NcclCommunicator::broadcast(const TensorView& data, int root) {
  if (!data.bytes()) return;
  enqueue(nccl().ncclBroadcast, static_cast<const void*>(data.data), static_cast<void*>(data.data),
          count(data.bytes()), NcclType::u8, root);
}

}  // namespace plait::cuda
