#pragma once
#include "core/base/function_ref.h"
#include "core/comm/communicator.h"

namespace plait {

/// A communicator of arrays on devices, whose sums a kernel can make while it reads them.
class SumsInKernels {
 public:
  virtual ~SumsInKernels() = default;
  /// An all-reduce by sum of `part` [n], whose result the kernel that `launch` launches takes in place of an operand, whose data are not
  /// read then. False: not for such an array, and nothing has been done. As a collective, called by all ranks alike.
  virtual bool sum_into(const TensorView& part, FunctionRef<void()> launch) = 0;
};

}  // namespace plait
