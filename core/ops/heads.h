#pragma once
// Operands of attention: [b, heads, length, size], or packed [b, length, heads * size].
#include <optional>

#include "core/graph/schema.h"

namespace plait {

struct Heads {
  Dim batch, heads, length, size;
};

/// Dims of rank 4 directly, of rank 3 by the number of heads; a symbolic packed size that is not a multiple of the
/// heads gives an unknown head size. `what` names the operand in errors. Throws Error(bad_model) for other ranks, and
/// if the packed size is not divisible.
Heads split_heads(InferContext& context, const Dims& dims, int64_t heads, const char* what);

/// The size of one head, if it is a number.
std::optional<int64_t> head_size(const Type& type, int64_t heads);

}  // namespace plait
