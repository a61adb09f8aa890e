#pragma once
// Heads of linear attention: of the ops whose states are in slots, and of those over packed rows.
#include <optional>
#include <string>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// `key` counts states, and so values. As com.microsoft has it, there may be fewer queries or keys than states, which then
/// share them.
struct LinearHeads {
  int64_t query = 0, key = 0;
};
/// Throws Error(bad_model) for numbers of which none divides the other.
LinearHeads linear_heads(const Attributes& attributes);

/// The last dims of each operand in a rule; of what is absent "". Heads are free, and the state goes with them: where r queries
/// share a state, r belongs to the queries; where r states share a query, to the states.
struct LinearHeadDims {
  std::string state, query, key, value, decay, beta, result;
};
/// Operands `first` and on are q, k and v [b, t, heads size]; `fades` and `fades` + 1 are decay and beta, which may be absent.
/// nullopt where sizes are not known or do not fit.
std::optional<LinearHeadDims> linear_head_dims(const Attributes& attributes, const std::vector<Type>& in,
                                               size_t first, size_t fades);

}  // namespace plait
