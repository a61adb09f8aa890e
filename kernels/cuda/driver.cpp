#include "kernels/cuda/driver.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::cuda {
namespace {

constexpr const char* what_to_do = "install NVIDIA's driver 580 (CUDA 13.0) or newer, or choose device=cpu";

/// 12040 is version 12.4.
std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::string CudaDriver::text(Status status) const {
  const char *name = nullptr, *words = nullptr;
  if (error_name(status, &name) || !name) name = "an unknown error";
  if (error_string(status, &words) || !words) return cat(name, " ", status);
  return cat(name, " (", words, ")");
}

bool ends_context(Status status) {
  switch (status) {
    case cuda_ecc_uncorrectable:
    case cuda_illegal_address:
    case 702:  // a launch took too long
    case 710:  // an assertion of a kernel
    case 714:  // a hardware error of the stack
    case 715:  // an illegal instruction
    case 716:  // a misaligned address
    case 717:  // an instruction in the wrong address space
    case 718:  // an invalid program counter
    case cuda_launch_failed: return true;
    default: return false;
  }
}

void CudaDriver::fail(Status status, const char* function) const {
  if (status == cuda_out_of_memory)
    throw Error(Code::out_of_memory, cat(function, ": ", text(status)),
                "free memory of the device, or use fewer pages, smaller weights (int4), or more devices (mesh)");
  throw Error(Code::io, cat(function, ": ", text(status)),
              ends_context(status)
                  ? "the device is lost for this process's objects: create them again; if it happens again, the "
                    "system's log (NVRM, Xid) names the reason"
                  : "");
}

CudaDriver load_driver(const std::string& path) {
  const LoadedLibrary library(path, what_to_do);
  CudaDriver out;
  // A driver that is too old lacks functions: its version is the better message.
  library.find(out.init, "cuInit");
  library.find(out.driver_version, "cuDriverGetVersion");
  library.find(out.error_name, "cuGetErrorName");
  library.find(out.error_string, "cuGetErrorString");
  int version = 0;
  out.call(out.driver_version, &version);
  if (version < oldest_driver)
    throw Error(Code::unsupported,
                cat("the CUDA driver ", quote(path), " is of version ", version_text(version), "; at least ",
                    version_text(oldest_driver), " is needed"),
                what_to_do);
#define PLAIT_FIND(member, function, symbol, parameters) library.find(out.member, #symbol);
  PLAIT_CUDA_DRIVER(PLAIT_FIND)
#undef PLAIT_FIND
  if (const Status status = out.init(0))
    throw Error(Code::unsupported, cat("no CUDA device can be used: cuInit: ", out.text(status)), what_to_do);
  return out;
}

}  // namespace plait::cuda
