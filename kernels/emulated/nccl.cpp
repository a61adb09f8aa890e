// NCCL between emulated devices of one process. The calls of a group's ranks are compared; where they differ, NCCL would hang, and here
// every rank gets an error that names both. Sums go in a random order of ranks, which NCCL does not promise either.
#include "kernels/cuda/nccl.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include "core/base/dtype.h"
#include "kernels/emulated/driver_calls.h"

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

constexpr const char* type_names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                      "uint64", "float16", "float32", "float64", "bfloat16"};
constexpr size_t type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr const char* reduction_names[] = {"sum", "product", "max", "min"};

size_t bytes_of(NcclType type) { return type_bytes[static_cast<int>(type)]; }

/// What a rank asks for. All ranks of a group ask for the same.
struct Collective {
  const char* function;
  size_t count;
  NcclType type;
  int number;  ///< reduction, or root; -1 if neither
  bool captured = false;

  std::string text(int rank) const {
    std::string out = std::string(captured ? "captured " : "") + function + " of " + std::to_string(count) + " " +
                      type_names[static_cast<int>(type)];
    if (number >= 0)
      out += std::strcmp(function, "ncclBroadcast") ? std::string(", ") + reduction_names[number]
                                                    : ", root " + std::to_string(number);
    return out + " by rank " + std::to_string(rank);
  }
  bool operator==(const Collective& other) const {
    return !std::strcmp(function, other.function) && count == other.count && type == other.type &&
           number == other.number && captured == other.captured;
  }
};

/// The n-th collective of a group.
struct Meeting {
  Collective call{};
  int first = 0;    ///< the rank that has come first
  int arrived = 0;  ///< streams that have reached it
  int left = 0;
  bool done = false;
  std::vector<const std::byte*> from;  ///< by rank, where the driver accesses it
  std::vector<std::byte*> to;
};

struct Mail {
  std::vector<std::byte> bytes;
};

struct Group {
  std::map<int, int> devices;  ///< by rank that has come
  int ranks = 0;
  std::map<int64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Mail>> mail;  ///< from, to
  std::string error;                                     ///< ends all

  bool complete() const { return static_cast<int>(devices.size()) == ranks; }
};

std::map<uint64_t, std::shared_ptr<Group>>& groups() {
  static auto* const all = new std::map<uint64_t, std::shared_ptr<Group>>;
  return *all;
}

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

/// to[i] = reduction of all ranks' from[offset + i], in that order of ranks.
template <class T, class Load, class Store>
void reduce(const Meeting& meeting, std::span<const int> order, size_t offset, size_t count, std::byte* to, Load load,
            Store store) {
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](int rank) {
      return load(reinterpret_cast<const T*>(meeting.from[static_cast<size_t>(rank)])[offset + i]);
    };
    auto sum = at(order[0]);
    for (size_t k = 1; k < order.size(); ++k)
      sum = reduced(sum, at(order[k]), static_cast<NcclReduction>(meeting.call.number));
    reinterpret_cast<T*>(to)[i] = store(sum);
  }
}

void reduce(const Meeting& meeting, std::span<const int> order, size_t offset, size_t count, std::byte* to) {
  const auto plain = [&]<class T>(T) {
    reduce<T>(
        meeting, order, offset, count, to, [](T x) { return x; }, [](T x) { return x; });
  };
  switch (meeting.call.type) {
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
          meeting, order, offset, count, to, [](Float16 x) { return to_float(x); }, to_float16);
    case NcclType::bf16:
      return reduce<BFloat16>(
          meeting, order, offset, count, to, [](BFloat16 x) { return to_float(x); }, to_bfloat16);
  }
}

/// All ranks' work at once; results are made apart, since outputs may be inputs.
void run(const Meeting& meeting, std::span<const int> order) {
  const Collective& call = meeting.call;
  const size_t part = call.count * bytes_of(call.type), ranks = meeting.from.size();
  const bool gathers = !std::strcmp(call.function, "ncclAllGather"),
             scatters = !std::strcmp(call.function, "ncclReduceScatter");
  std::vector<std::vector<std::byte>> results(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::byte>& out = results[rank];
    out.resize(gathers ? part * ranks : part);
    if (!std::strcmp(call.function, "ncclBroadcast"))
      std::memcpy(out.data(), meeting.from[static_cast<size_t>(call.number)], part);
    else if (gathers)
      for (size_t k = 0; k < ranks; ++k) std::memcpy(out.data() + k * part, meeting.from[k], part);
    else reduce(meeting, order, scatters ? rank * call.count : 0, call.count, out.data());
  }
  for (size_t rank = 0; rank < ranks; ++rank)
    std::memcpy(meeting.to[rank], results[rank].data(), results[rank].size());
}

}  // namespace
}  // namespace plait::emulated

struct ncclComm {
  std::shared_ptr<plait::emulated::Group> group;
  int rank = 0;
  std::shared_ptr<int64_t> calls = std::make_shared<int64_t>(0);  ///< collectives so far, those of replays included
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace plait::cuda {
using namespace emulated;
namespace {

/// With the lock held.
NcclStatus end_group(Group& group, std::string error) {
  if (group.error.empty()) group.error = std::move(error);
  Machine::get().changed.notify_all();
  Machine::get().wake_all();
  return nccl_invalid_usage;
}

/// Where the driver accesses the bytes; null if the context cannot.
std::byte* access(const CUctx_st& context, const void* at, size_t bytes) {
  const auto address = reinterpret_cast<DevicePtr>(at);
  return reaches(context, address, bytes) ? Machine::get().memory.alias(address) : nullptr;
}

/// The next collective of a rank's stream, with the lock held. Ends the group where other ranks ask for something else.
Item next_meeting(const Collective& call, const void* from, size_t from_parts, void* to, size_t to_parts,
                  const ncclComm& comm, const CUctx_st* context) {
  const auto group = comm.group;
  const auto aborted = comm.aborted;
  if (*aborted || !group->error.empty()) return {[] { return Status{0}; }, nullptr};
  const int64_t number = (*comm.calls)++;
  const auto [found, is_first] = group->meetings.try_emplace(number);
  Meeting& meeting = found->second;
  if (is_first) {
    meeting.call = call, meeting.first = comm.rank;
    meeting.from.resize(static_cast<size_t>(group->ranks)), meeting.to.resize(static_cast<size_t>(group->ranks));
  } else if (!(meeting.call == call)) {
    end_group(*group, meeting.call.text(meeting.first) + " meets " + call.text(comm.rank));
  }
  const auto rank = static_cast<size_t>(comm.rank);
  const size_t bytes = call.count * bytes_of(call.type);
  auto arrived = std::make_shared<bool>(false);
  const auto ready = [=] {
    if (*aborted || !group->error.empty()) return true;
    Meeting& own = group->meetings.at(number);
    if (!std::exchange(*arrived, true)) {
      own.from[rank] = access(*context, from, bytes * from_parts);
      own.to[rank] = access(*context, to, bytes * to_parts);
      if (++own.arrived == group->ranks) Machine::get().wake_all();
    }
    return own.arrived == group->ranks;
  };
  const auto run = [=]() -> Status {
    Machine& machine = Machine::get();
    std::lock_guard lock(machine.mutex);
    if (*aborted || !group->error.empty()) return 0;
    Meeting& own = group->meetings.at(number);
    for (size_t k = 0; k < own.from.size(); ++k)
      if (!own.from[k] || !own.to[k]) return cuda_illegal_address;
    if (!std::exchange(own.done, true)) {
      std::vector<int> order(own.from.size());
      std::iota(order.begin(), order.end(), 0);
      for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[machine.random() % k]);
      emulated::run(own, order);
    }
    if (++own.left == group->ranks) group->meetings.erase(number);
    return 0;
  };
  return {run, ready};
}

/// A captured call is one of the group's collectives at each launch of its graph, of which all ranks have one with the same call.
NcclStatus collective(Collective call, const void* from, size_t from_parts, void* to, size_t to_parts, NcclComm comm,
                      Stream stream) {
  Call guard(call.function);
  if (!guard.takes(stream)) return nccl_unhandled_cuda_error;
  Group& group = *comm->group;
  if (!group.error.empty() || !group.complete()) return nccl_invalid_usage;
  call.captured = stream->capture != nullptr;
  const auto next = [=, comm = *comm, context = stream->context] {
    return next_meeting(call, from, from_parts, to, to_parts, comm, context);
  };
  Item item;
  if (call.captured) item.again = next;
  else item = next();
  if (!group.error.empty()) return nccl_invalid_usage;
  if (guard.machine.give(stream, std::move(item))) return nccl_unhandled_cuda_error;
  return guard.machine.random() % 4 ? nccl_success : nccl_in_progress;  // and done when the error is asked for
}

}  // namespace

NcclStatus ncclGetUniqueId(NcclId* id) {
  Call call("ncclGetUniqueId", false);
  if (call.refused) return nccl_internal_error;
  static uint64_t next = 1;
  const uint64_t number = next++;
  const pid_t process = getpid();
  *id = {};
  std::memcpy(id->bytes, &number, sizeof number);
  std::memcpy(id->bytes + sizeof number, &process, sizeof process);
  groups()[number] = std::make_shared<Group>();
  return nccl_success;
}

/// In progress until all ranks have come.
NcclStatus ncclCommInitRankConfig(NcclComm* out, int ranks, NcclId id, int rank, NcclConfig* config) {
  Call call("ncclCommInitRankConfig");
  if (call.refused) return nccl_internal_error;
  uint64_t number = 0;
  pid_t process = 0;
  std::memcpy(&number, id.bytes, sizeof number);
  std::memcpy(&process, id.bytes + sizeof number, sizeof process);
  if (process != getpid() || !groups().count(number) || rank < 0 || rank >= ranks) return nccl_invalid_usage;
  const NcclConfig valid;
  if (config->magic != valid.magic || config->size != valid.size || config->blocking) return nccl_invalid_argument;
  const std::shared_ptr<Group> group = groups().at(number);
  group->ranks = ranks;
  for (const auto& [other, device] : group->devices)
    if (other == rank || device == call.context->device) return end_group(*group, "Duplicate GPU detected");
  group->devices[rank] = call.context->device;
  if (!group->error.empty()) return nccl_invalid_usage;
  if (group->complete()) groups().erase(number);
  *out = new ncclComm{group, rank};
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
  *error = !comm->group->error.empty() ? nccl_invalid_usage
           : comm->group->complete()   ? nccl_success
                                       : nccl_in_progress;
  return nccl_success;
}

NcclStatus ncclAllReduce(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                         NcclComm comm, Stream stream) {
  return collective({"ncclAllReduce", count, type, static_cast<int>(reduction)}, from, 1, to, 1, comm, stream);
}

NcclStatus ncclAllGather(const void* from, void* to, size_t count, NcclType type, NcclComm comm, Stream stream) {
  return collective({"ncclAllGather", count, type, -1}, from, 1, to, static_cast<size_t>(comm->group->ranks), comm,
                    stream);
}

NcclStatus ncclReduceScatter(const void* from, void* to, size_t count, NcclType type, NcclReduction reduction,
                             NcclComm comm, Stream stream) {
  return collective({"ncclReduceScatter", count, type, static_cast<int>(reduction)}, from,
                    static_cast<size_t>(comm->group->ranks), to, 1, comm, stream);
}

NcclStatus ncclBroadcast(const void* from, void* to, size_t count, NcclType type, int root, NcclComm comm,
                         Stream stream) {
  return collective({"ncclBroadcast", count, type, root}, from, 1, to, 1, comm, stream);
}

NcclStatus ncclSend(const void* from, size_t count, NcclType type, int peer, NcclComm comm, Stream stream) {
  Call call("ncclSend");
  if (!call.takes(stream)) return nccl_unhandled_cuda_error;
  const size_t bytes = count * bytes_of(type);
  const auto run = [=, group = comm->group, rank = comm->rank, context = stream->context]() -> Status {
    const std::byte* at = access(*context, from, bytes);
    if (!at) return cuda_illegal_address;
    std::lock_guard lock(Machine::get().mutex);
    group->mail[{rank, peer}].push_back({{at, at + bytes}});
    Machine::get().wake_all();
    return 0;
  };
  return call.machine.give(stream, {run, nullptr}) ? nccl_unhandled_cuda_error : nccl_success;
}

NcclStatus ncclRecv(void* to, size_t count, NcclType type, int peer, NcclComm comm, Stream stream) {
  Call call("ncclRecv");
  if (!call.takes(stream)) return nccl_unhandled_cuda_error;
  const size_t bytes = count * bytes_of(type);
  const std::pair<int, int> from{peer, comm->rank};
  const auto run = [=, group = comm->group, aborted = comm->aborted, context = stream->context]() -> Status {
    std::byte* const at = access(*context, to, bytes);
    std::lock_guard lock(Machine::get().mutex);
    if (*aborted || !group->error.empty()) return 0;
    const Mail mail = std::move(group->mail[from].front());
    group->mail[from].pop_front();
    if (!at) return cuda_illegal_address;
    if (mail.bytes.size() == bytes) std::memcpy(at, mail.bytes.data(), bytes);
    else
      end_group(*group, "ncclSend of " + std::to_string(mail.bytes.size()) + " bytes by rank " +
                            std::to_string(from.first) + " meets ncclRecv of " + std::to_string(bytes) +
                            " bytes by rank " + std::to_string(from.second));
    return 0;
  };
  const auto ready = [from, group = comm->group, aborted = comm->aborted] {
    return *aborted || !group->error.empty() || !group->mail[from].empty();
  };
  return call.machine.give(stream, {run, ready}) ? nccl_unhandled_cuda_error : nccl_success;
}

/// Sends do not wait for their receivers here, so a group has no effect.
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

const char* ncclGetLastError(NcclComm comm) { return comm ? comm->group->error.c_str() : ""; }

}  // namespace plait::cuda
