#pragma once
// Heads of linear attention: of the ops with states in slots, and of those over packed rows.
#include <optional>
#include <string>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// `key` counts states, and so values. As in com.microsoft, there may be fewer queries or keys than states, which
/// then share them.
struct LinearHeads {
  int64_t query = 0, key = 0;
};
/// Throws Error(bad_model) if neither number divides the other.
LinearHeads linear_heads(const Attributes& attributes);

/// The last dims of each operand in a rule; "" for absent ones. Heads are free, and so is the state: if r queries
/// share a state, r belongs to the queries; if r states share a query, to the states.
struct LinearHeadDims {
  std::string state, query, key, value, decay, beta, result;
};
/// Operands `first` and on are q, k and v [b, t, heads size]; `fades` and `fades` + 1 are decay and beta, which may
/// be absent. nullopt if sizes are unknown or do not fit.
std::optional<LinearHeadDims> linear_head_dims(const Attributes& attributes, const std::vector<Type>& in,
                                               size_t first, size_t fades);

}  // namespace plait
