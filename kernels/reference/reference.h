#pragma once
// The reference kernels: every op as plain loops over whole arrays, in the newest form of its schema (ONNX opset 23
// and 24, com.microsoft 1, and Plait's own "plait." ops). They define what an op computes; faster kernels are tested
// against them, and constants are folded with them.
#include "core/exec/kernel.h"

namespace plait {

/// Adds one kernel per op, isa "reference", priority 0.
///
/// Common properties:
/// - Elements may be unaligned. f16 and bf16 are widened, and a result is rounded once, at the end.
/// - Floating point is computed in f64 and integers with 64 wrapping bits, except contractions (MatMul, Gemm,
/// Linear):
///   f32, or f64 for f64. Every sum has one order, for any number of threads.
/// - Beyond the contract of core/exec/kernel.h they allocate working memory of the size of their operands.
void register_reference_kernels(KernelTable& table);

}  // namespace plait
