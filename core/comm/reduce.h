#pragma once
#include <span>

#include "core/comm/communicator.h"

namespace plait {

/// Whether all_reduce and reduce_scatter support this dtype.
bool is_reducible(DType dtype);

/// out[i] = sources[0][i] (+) sources[1][i] (+) ..., in this order; f16 and bf16 in f32, rounded once. No alignment
/// is required. `out` may be one of the sources and must not overlap the others.
void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, int64_t count,
                     std::byte* out);

}  // namespace plait
