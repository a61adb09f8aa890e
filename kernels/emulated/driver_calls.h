#pragma once
// What the exported functions of the emulated driver share.
#include "kernels/emulated/driver_machine.h"

namespace plait::emulated {

/// One call of the driver: holds the machine's lock, and returns a planted failure. `in_context`: the calling thread needs a
/// context, and one without an error.
class Call {
 public:
  explicit Call(const char* function, bool in_context = true);

  /// What the function returns at once; 0: it continues.
  Status refused = 0;
  Machine& machine;
  std::unique_lock<std::mutex> lock;
  CUctx_st* context;  ///< of the calling thread

  /// A stream of any context, without an error; otherwise sets `refused`.
  bool takes(CUstream_st* stream);
  /// What a function that destroys something returns at once: the context's error, which does not keep it from doing so, is not it.
  Status refuses_to_destroy() const { return context && refused == context->sticky ? 0 : refused; }
};

/// The calling thread's context.
CUctx_st*& current_context();
/// Whether work of the context may access all of these bytes of device memory.
bool reaches(const CUctx_st& context, cuda::DevicePtr at, size_t bytes);

}  // namespace plait::emulated

/// The exported functions: definitions have the signatures of the table.
namespace plait::cuda {
#define PLAIT_DECLARE(member, function, symbol, parameters) \
  extern "C" __attribute__((visibility("default"))) Status symbol parameters;
PLAIT_CUDA_DRIVER(PLAIT_DECLARE)
#undef PLAIT_DECLARE
}  // namespace plait::cuda
