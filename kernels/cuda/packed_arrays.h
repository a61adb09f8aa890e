#pragma once
// Sizes of weights in the layouts of kernels/cuda/kernels/linear.h, which the launch code packs (kernels/cuda/launch/linear_pack.h).
#include <string_view>

#include "core/base/dtype.h"
#include "core/base/shape.h"

namespace plait::cuda {

/// Names of packed layouts begin so (PackedLayout::name).
constexpr std::string_view halves_name = "mma 16 bits", scales_name = "mma scales", zeros_name = "mma zeros";

/// Bytes of [n, k] of 16 bits.
int64_t packed_halves_bytes(const Shape& shape);
/// Bytes of codes [n, c, l], packed as 8 bits each or as 4.
int64_t packed_codes_bytes(const Shape& shape, int bits);
/// Bytes of scales or zeros [n, c].
int64_t packed_blocks_bytes(const Shape& shape);

/// Bytes of an array in the layout of that name; of any other name, as a plain one.
int64_t packed_array_bytes(std::string_view layout, DType dtype, const Shape& shape);

}  // namespace plait::cuda
