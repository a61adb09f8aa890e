#pragma once
// Indices in memory, and reports of those that are out of range.
#include "kernels/cuda/fault_word.h"
#include "kernels/cuda/kernels/device.h"
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

PLAIT_DEVICE int64_t load_index(const Indices& indices, int64_t i) {
  return indices.wide ? static_cast<const int64_t*>(indices.data)[i] : static_cast<const int32_t*>(indices.data)[i];
}

/// Reports an index of an operand that is out of range; the first report of all is kept.
PLAIT_DEVICE void report_index(const FaultReport& report, int operand, int64_t value) {
  constexpr int index_out_of_range = 1;  // KernelCode
  FaultWord* const word = static_cast<FaultWord*>(report.word);
  if (atomicCAS(&word->code, 0, index_out_of_range)) return;
  word->operand = operand, word->value = value, word->instruction = static_cast<int32_t>(report.instruction);
}

}  // namespace plait::cuda
