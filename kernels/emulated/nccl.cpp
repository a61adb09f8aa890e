// NCCL between emulated devices, of threads and of processes. The calls of a group's ranks are compared; where they differ, NCCL would
// hang, and here every rank gets an error that names both. Sums go in a random order of ranks, which NCCL does not promise either.
#include "kernels/cuda/nccl.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/dtype.h"
#include "kernels/emulated/driver_calls.h"
#include "kernels/emulated/nccl_board.h"

namespace plait::cuda {
#define PLAIT_DECLARE(function, returned, parameters) \
  extern "C" __attribute__((visibility("default"))) returned function parameters;
PLAIT_NCCL(PLAIT_DECLARE)
#undef PLAIT_DECLARE
}  // namespace plait::cuda

namespace plait::emulated {
namespace {

using cuda::NcclReduction;
using cuda::NcclType;
using Kind = CollectiveCall::Kind;

constexpr size_t type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

size_t bytes_of(NcclType type) { return type_bytes[static_cast<int>(type)]; }

template <class T>
T reduced(T a, T b, NcclReduction reduction) {
  switch (reduction) {
    case NcclReduction::sum:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else return a + b;
    case NcclReduction::product:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else return a * b;
    case NcclReduction::max: return std::max(a, b);
    case NcclReduction::min: return std::min(a, b);
  }
  return a;
}

/// What all ranks have posted, by rank.
using Inputs = std::vector<Board::Posted>;

/// to[i] = reduction of all ranks' data[offset + i], in that order of ranks.
template <class T, class Load, class Store>
void reduce(const Inputs& inputs, std::span<const int> order, size_t offset, std::span<std::byte> to, Load load,
            Store store) {
  const auto reduction = static_cast<NcclReduction>(inputs[0].call.number);
  for (size_t i = 0; i < to.size() / sizeof(T); ++i) {
    const auto at = [&](int rank) {
      T out;
      std::memcpy(&out, inputs[static_cast<size_t>(rank)].data.data() + (offset + i) * sizeof(T), sizeof(T));
      return load(out);
    };
    auto sum = at(order[0]);
    for (size_t k = 1; k < order.size(); ++k) sum = reduced(sum, at(order[k]), reduction);
    const T out = store(sum);
    std::memcpy(to.data() + i * sizeof(T), &out, sizeof(T));
  }
}

void reduce(const Inputs& inputs, std::span<const int> order, size_t offset, std::span<std::byte> to) {
  const auto plain = [&]<class T>(T) {
    reduce<T>(
        inputs, order, offset, to, [](T x) { return x; }, [](T x) { return x; });
  };
  switch (inputs[0].call.type) {
    case NcclType::i8: return plain(int8_t{});
    case NcclType::u8: return plain(uint8_t{});
    case NcclType::i32: return plain(int32_t{});
    case NcclType::u32: return plain(uint32_t{});
    case NcclType::i64: return plain(int64_t{});
    case NcclType::u64: return plain(uint64_t{});
    case NcclType::f32: return plain(float{});
    case NcclType::f64: return plain(double{});
    case NcclType::f16:
      return reduce<Float16>(
          inputs, order, offset, to, [](Float16 x) { return to_float(x); }, to_float16);
    case NcclType::bf16:
      return reduce<BFloat16>(
          inputs, order, offset, to, [](BFloat16 x) { return to_float(x); }, to_bfloat16);
  }
}

/// The result of one rank. All ranks have the same random order.
std::vector<std::byte> result_of(const Inputs& inputs, int rank) {
  const CollectiveCall& call = inputs[0].call;
  if (call.kind == Kind::broadcast) return inputs[static_cast<size_t>(call.number)].data;
  std::vector<std::byte> out;
  if (call.kind == Kind::all_gather) {
    for (const Board::Posted& one : inputs) out.insert(out.end(), one.data.begin(), one.data.end());
    return out;
  }
  std::vector<int> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(inputs[0].seed);
  for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random() % k]);
  out.resize(call.count * bytes_of(call.type));
  reduce(inputs, order, call.kind == Kind::reduce_scatter ? static_cast<size_t>(rank) * call.count : 0, out);
  return out;
}

}  // namespace
}  // namespace plait::emulated

struct ncclComm {
  std::shared_ptr<plait::emulated::Board> board;
  std::shared_ptr<int64_t> calls = std::make_shared<int64_t>(0);  ///< collectives so far, those of replays included
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);  ///< with the machine's lock

  bool over() const { return *aborted || board->failed(); }
};

namespace plait::cuda {
using namespace emulated;
namespace {

/// Without the lock.
Status end_group(Board& board, const std::string& error) {
  board.fail(error);
  Machine& machine = Machine::get();
  std::lock_guard lock(machine.mutex);
  machine.changed.notify_all();
  machine.wake_all();
  return 0;
}

bool is_over(const ncclComm& comm) {
  std::lock_guard lock(Machine::get().mutex);
  return comm.over();
}

/// Where the driver accesses the bytes; null if the context cannot.
std::byte* access(const CUctx_st& context, const void* at, size_t bytes) {
  const auto address = reinterpret_cast<DevicePtr>(at);
  return reaches(context, address, bytes) ? Machine::get().memory.alias(address) : nullptr;
}

/// Takes what all have posted, and makes the rank's result. Without the lock.
Status finish_meeting(int64_t number, const CollectiveCall& call, void* to, const ncclComm& comm,
                      const CUctx_st& context) {
  if (is_over(comm)) return 0;
  Board& board = *comm.board;
  Inputs inputs;
  for (int rank = 0; rank < board.ranks(); ++rank) inputs.push_back(board.take(number, rank));
  for (int rank = 0; rank < board.ranks(); ++rank)
    if (const CollectiveCall& other = inputs[static_cast<size_t>(rank)].call; !(other == call))
      return end_group(board, rank < board.rank() ? other.text(rank) + " meets " + call.text(board.rank())
                                                  : call.text(board.rank()) + " meets " + other.text(rank));
  for (const Board::Posted& one : inputs)
    if (!one.accessible) return cuda_illegal_address;
  if (board.failed()) return 0;
  const std::vector<std::byte> result = result_of(inputs, board.rank());
  std::byte* const at = access(context, to, result.size());
  if (!at) return cuda_illegal_address;
  std::memcpy(at, result.data(), result.size());
  return 0;
}

/// The next collective of a rank's stream, with the lock held.
Item next_meeting(const CollectiveCall& call, const void* from, size_t bytes, void* to, const ncclComm& comm,
                  const CUctx_st* context) {
  const int64_t number = ++*comm.calls;
  const uint64_t seed = Machine::get().random();
  const auto posted = std::make_shared<bool>(false);
  const auto ready = [=] {
    if (comm.over()) return true;
    if (!*posted && (*posted = comm.board->post(number, call, seed, access(*context, from, bytes), bytes)))
      Machine::get().wake_all();
    return *posted && comm.board->posted(number);
  };
  return {[=] { return finish_meeting(number, call, to, comm, *context); }, ready};
}

/// `parts`: of `count` elements each, at `from`. A captured call is one of the group's collectives at each launch of its graph, of which
/// all ranks have one with the same call.
NcclStatus collective(CollectiveCall call, const void* from, int parts, void* to, NcclComm comm, Stream stream) {
  Call guard(call.function());
  if (!guard.takes(stream)) return nccl_unhandled_cuda_error;
  if (comm->board->failed() || !comm->board->complete()) return nccl_invalid_usage;
  call.captured = stream->capture != nullptr;
  const size_t bytes = call.count * bytes_of(call.type) * static_cast<size_t>(parts);
  const auto next = [=, comm = *comm, context = stream->context] {
    return next_meeting(call, from, bytes, to, comm, context);
  };
  Item item;
  if (call.captured) item.again = next;
  else item = next();
  if (guard.machine.give(stream, std::move(item))) return nccl_unhandled_cuda_error;
  return guard.machine.random() % 4 ? nccl_success : nccl_in_progress;  // and done when the error is asked for
}

}  // namespace

NcclStatus ncclGetUniqueId(NcclId* id) {
  Call call("ncclGetUniqueId", false);
  if (call.refused) return nccl_internal_error;
  *id = Board::make();
  return nccl_success;
}

/// In progress until all ranks have come.
NcclStatus ncclCommInitRankConfig(NcclComm* out, int ranks, NcclId id, int rank, NcclConfig* config) {
  Call call("ncclCommInitRankConfig");
  if (call.refused) return nccl_internal_error;
  const NcclConfig valid;
  if (config->magic != valid.magic || config->size != valid.size || config->blocking) return nccl_invalid_argument;
  std::shared_ptr<Board> board = Board::open(id, ranks, rank, call.context->device);
  if (!board || board->failed()) return nccl_invalid_usage;
  *out = new ncclComm{std::move(board)};
  ++call.machine.counts.communicators;
  return nccl_in_progress;
}

NcclStatus ncclCommDestroy(NcclComm comm) {
  Call call("ncclCommDestroy", false);
  if (call.refused) return nccl_internal_error;
  --call.machine.counts.communicators;
  delete comm;
  return nccl_success;
}

/// This rank's work ends without a result; that of others waits on.
NcclStatus ncclCommAbort(NcclComm comm) {
  Call call("ncclCommAbort", false);
  if (call.refused) return nccl_internal_error;
  *comm->aborted = true;
  call.machine.wake_all();
  --call.machine.counts.communicators;
  delete comm;
  return nccl_success;
}

NcclStatus ncclCommGetAsyncError(NcclComm comm, NcclStatus* error) {
  Call call("ncclCommGetAsyncError", false);
  if (call.refused) return nccl_internal_error;
  *error = comm->board->failed() ? nccl_invalid_usage : comm->board->complete() ? nccl_success : nccl_in_progress;
  return nccl_success;
}

NcclStatus ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                         NcclComm comm, Stream stream) {
  return collective({Kind::all_reduce, static_cast<int>(reduction), count, type}, from, 1, to, comm, stream);
}

NcclStatus ncclAllGather(const void* from, void* to, size_t count, NcclType type, NcclComm comm, Stream stream) {
  return collective({Kind::all_gather, -1, count, type}, from, 1, to, comm, stream);
}

NcclStatus ncclReduceScatter(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                             NcclComm comm, Stream stream) {
  return collective({Kind::reduce_scatter, static_cast<int>(reduction), count, type}, from, comm->board->ranks(), to,
                    comm, stream);
}

NcclStatus ncclBroadcast(const void* from, void* to, size_t count, NcclType type, int root, NcclComm comm,
                         Stream stream) {
  return collective({Kind::broadcast, root, count, type}, from, 1, to, comm, stream);
}

NcclStatus ncclSend(const void* from, size_t count, NcclType type, int peer, NcclComm comm, Stream stream) {
  Call call("ncclSend");
  if (!call.takes(stream)) return nccl_unhandled_cuda_error;
  const size_t bytes = count * bytes_of(type);
  const auto run = [=, comm = *comm, context = stream->context]() -> Status {
    const std::byte* at = access(*context, from, bytes);
    if (!at) return cuda_illegal_address;
    if (is_over(comm)) return 0;
    comm.board->send(peer, at, bytes);
    std::lock_guard lock(Machine::get().mutex);
    Machine::get().wake_all();
    return 0;
  };
  const auto ready = [peer, comm = *comm] { return comm.over() || comm.board->has_room(peer); };
  return call.machine.give(stream, {run, ready}) ? nccl_unhandled_cuda_error : nccl_success;
}

NcclStatus ncclRecv(void* to, size_t count, NcclType type, int peer, NcclComm comm, Stream stream) {
  Call call("ncclRecv");
  if (!call.takes(stream)) return nccl_unhandled_cuda_error;
  const size_t bytes = count * bytes_of(type);
  const auto run = [=, comm = *comm, context = stream->context]() -> Status {
    if (is_over(comm)) return 0;
    const std::vector<std::byte> letter = comm.board->receive(peer);
    if (comm.board->failed()) return 0;
    if (letter.size() != bytes)
      return end_group(*comm.board, "ncclSend of " + std::to_string(letter.size()) + " bytes by rank " +
                                        std::to_string(peer) + " meets ncclRecv of " + std::to_string(bytes) +
                                        " bytes by rank " + std::to_string(comm.board->rank()));
    std::byte* const at = access(*context, to, bytes);
    if (!at) return cuda_illegal_address;
    std::memcpy(at, letter.data(), bytes);
    return 0;
  };
  const auto ready = [peer, comm = *comm] { return comm.over() || comm.board->has_letter(peer); };
  return call.machine.give(stream, {run, ready}) ? nccl_unhandled_cuda_error : nccl_success;
}

/// Sends do not wait for their receivers here, as few as there are at a time, so a group has no effect.
NcclStatus ncclGroupStart() { return Call("ncclGroupStart").refused ? nccl_internal_error : nccl_success; }
NcclStatus ncclGroupEnd() { return Call("ncclGroupEnd").refused ? nccl_internal_error : nccl_success; }

const char* ncclGetErrorString(NcclStatus status) {
  switch (status) {
    case nccl_success: return "no error";
    case nccl_unhandled_cuda_error: return "unhandled cuda error";
    case nccl_internal_error: return "internal error";
    case nccl_invalid_argument: return "invalid argument";
    case nccl_invalid_usage: return "invalid usage";
    case nccl_remote_error: return "remote process exited or there was a network error";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(NcclComm comm) { return comm ? comm->board->error() : ""; }

}  // namespace plait::cuda
