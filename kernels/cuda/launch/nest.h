#pragma once
// Shapes and steps of operands, as kernels take them.
#include "core/exec/kernel.h"
#include "kernels/cuda/kernels/elementwise.h"

namespace plait::cuda {

/// Row-major steps.
Shape steps_of(const Shape& shape);
/// Steps of `shape`, aligned right, read as `target`: 0 for repeated dimensions (NumPy's broadcasting).
Shape broadcast_steps(const Shape& shape, const Shape& target);
/// A fault of operand `i` if its shape cannot be read as the first output's: symbolic sizes are numbers only in a call.
KernelStatus broadcast_fault(const KernelCall& call, size_t i);
/// Loops over `sizes` with steps of two operands; dimensions that are contiguous in both are merged.
Nest make_nest(const Shape& sizes, const Shape& first, const Shape& second);

}  // namespace plait::cuda
