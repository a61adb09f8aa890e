#pragma once
// Plain C++ for kernels and host alike.
#include <stdint.h>

namespace plait::cuda {

/// Where kernels report data-dependent faults; in pinned host memory that the device can write. The first report is kept: a kernel
/// sets `code`, which was 0, by atomicCAS, and then writes the rest.
struct FaultWord {
  int32_t code;         ///< KernelCode; 0: none
  int32_t operand;      ///< as KernelStatus
  int64_t value;        ///< as KernelStatus
  int32_t instruction;  ///< KernelCall::instruction, a parameter of the kernel
  int32_t reserved;
};

}  // namespace plait::cuda
