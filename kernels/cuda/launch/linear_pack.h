#pragma once
// Weights in the layouts of kernels/cuda/kernels/linear.h.
#include "core/exec/kernel.h"
#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

/// The layout of constant weights [n, k], or [n, c, l] in blocks, of that type; null: there is none.
const PackedLayout* weight_layout(DType dtype);
/// The layout of scales [n, c], and of zeros [n, c], of blocks of weights of that type.
const PackedLayout* scale_layout();
const PackedLayout* zero_layout(DType weights);
/// What packing adds to codes of that type, and so to zeros.
int code_shift(DType weights);

}  // namespace plait::cuda
