#pragma once
// Operands of attention: [b, heads, length, size], or packed [b, length, heads * size].
#include <optional>

#include "core/graph/schema.h"

namespace plait {

struct Heads {
  Dim batch, heads, length, size;
};

/// Of dims of rank 4 as they are, of rank 3 by the number of heads; a symbolic packed size that does not show its
/// heads gives an unknown head size. `what` names the operand in errors. Throws Error(bad_model) for other ranks, and
/// where the packed size does not divide.
Heads split_heads(InferContext& context, const Dims& dims, int64_t heads, const char* what);

/// The size of one head as a number, where it is one.
std::optional<int64_t> head_size(const Type& type, int64_t heads);

}  // namespace plait
