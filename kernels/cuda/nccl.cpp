#include "kernels/cuda/nccl.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::cuda {

std::string Nccl::text(NcclStatus status, NcclComm comm) const {
  const char* last = ncclGetLastError(comm);
  return cat(ncclGetErrorString(status), last && *last ? cat(" (", last, ")") : "");
}

void Nccl::fail(NcclStatus status, const char* function, NcclComm comm) const {
  throw Error(Code::io, cat(function, ": ", text(status, comm)),
              "the environment variable NCCL_DEBUG=INFO makes NCCL print its reasons");
}

Nccl load_nccl(const std::string& path) {
  const LoadedLibrary library(path, "without NCCL, collectives go through the host's memory");
  Nccl out;
#define PLAIT_FIND(function, returned, parameters) library.find(out.function, #function);
  PLAIT_NCCL(PLAIT_FIND)
#undef PLAIT_FIND
  return out;
}

}  // namespace plait::cuda
