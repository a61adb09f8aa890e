#pragma once
// The functions of NCCL (libnccl.so.2) that Plait calls, as a table like driver.h's. Source: NCCL 2.27.
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/driver.h"

struct ncclComm;

namespace plait::cuda {

using NcclComm = ncclComm*;
/// ncclResult_t.
using NcclStatus = int;
enum NcclResult : int {
  nccl_success = 0,
  nccl_unhandled_cuda_error = 1,
  nccl_internal_error = 3,
  nccl_invalid_argument = 4,
  nccl_invalid_usage = 5,
  nccl_remote_error = 6,
  nccl_in_progress = 7,
};
/// ncclDataType_t.
enum class NcclType : int { i8 = 0, u8 = 1, i32 = 2, u32 = 3, i64 = 4, u64 = 5, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
/// ncclRedOp_t.
enum class NcclReduction : int { sum = 0, product = 1, max = 2, min = 3 };
/// ncclUniqueId.
struct NcclId {
  char bytes[128];
};

/// The beginning of ncclConfig_t that NCCL 2.18 has (later versions take it too, by its size and version), and what 2.25 has put into the
/// rest of its 48 bytes.
struct NcclConfig {
  static constexpr int undefined = INT32_MIN;
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0;  ///< 0: calls may return nccl_in_progress, and go on while ncclCommGetAsyncError does
  int cluster_blocks = undefined, fewest_blocks = undefined, most_blocks = undefined;
  const char* network = nullptr;
  int split_share = undefined, traffic_class = undefined;
};

/// F(function in nccl.h, returned type, parameters)
#define PLAIT_NCCL(F)                                                                                              \
  F(ncclGetUniqueId, NcclStatus, (NcclId * id))                                                                    \
  F(ncclCommInitRankConfig, NcclStatus, (NcclComm * out, int ranks, NcclId id, int rank, NcclConfig* config))      \
  F(ncclCommDestroy, NcclStatus, (NcclComm comm))                                                                  \
  F(ncclCommAbort, NcclStatus, (NcclComm comm))                                                                    \
  F(ncclCommGetAsyncError, NcclStatus, (NcclComm comm, NcclStatus * error))                                        \
  F(ncclAllReduce, NcclStatus,                                                                                     \
    (const void* from, void* to, size_t count, NcclType type, NcclReduction reduction, NcclComm comm,              \
     Stream stream))                                                                                               \
  F(ncclAllGather, NcclStatus,                                                                                     \
    (const void* from, void* to, size_t count, NcclType type, NcclComm comm, Stream stream))                       \
  F(ncclReduceScatter, NcclStatus,                                                                                 \
    (const void* from, void* to, size_t count, NcclType type, NcclReduction reduction, NcclComm comm,              \
     Stream stream))                                                                                               \
  F(ncclBroadcast, NcclStatus,                                                                                     \
    (const void* from, void* to, size_t count, NcclType type, int root, NcclComm comm, Stream stream))             \
  F(ncclSend, NcclStatus, (const void* from, size_t count, NcclType type, int peer, NcclComm comm, Stream stream)) \
  F(ncclRecv, NcclStatus, (void* to, size_t count, NcclType type, int peer, NcclComm comm, Stream stream))         \
  F(ncclGroupStart, NcclStatus, ())                                                                                \
  F(ncclGroupEnd, NcclStatus, ())                                                                                  \
  F(ncclGetErrorString, const char*, (NcclStatus status))                                                          \
  F(ncclGetLastError, const char*, (NcclComm comm))

/// One thread at a time calls functions of a communicator.
struct Nccl {
#define PLAIT_MEMBER(function, returned, parameters) \
  LibraryFunction<returned parameters> function{nullptr, #function};
  PLAIT_NCCL(PLAIT_MEMBER)
#undef PLAIT_MEMBER

  /// Calls the function. Throws Error(io) with its name and NCCL's words for a status other than 0. `comm`: whose words; may be null.
  template <class... P, class... A>
  void call(NcclComm comm, const LibraryFunction<NcclStatus(P...)>& function, A... arguments) const {
    if (const NcclStatus status = function(arguments...)) fail(status, function.name, comm);
  }
  [[noreturn]] void fail(NcclStatus status, const char* function, NcclComm comm) const;
  /// "invalid usage (Duplicate GPU detected)".
  std::string text(NcclStatus status, NcclComm comm) const;
};

/// Loads NCCL from a library, which stays loaded. Any thread. Throws Error(unsupported) that names what is missing.
Nccl load_nccl(const std::string& library);

}  // namespace plait::cuda
