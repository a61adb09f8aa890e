#pragma once
// Shared by norms and their gradients (rows.cpp, normalize_back.cpp).
#include <memory>

#include "core/exec/kernel.h"

namespace plait::cpu {

/// Whether the attribute axis is the last dimension of input 0.
inline bool is_last_axis(const NodeInfo& node) {
  const int64_t axis = node.attributes.integer("axis", -1);
  return axis == -1 || (node.inputs[0].rank > 0 && axis == node.inputs[0].rank - 1);
}

struct NormState : KernelState {
  float epsilon = 0;
};

inline std::shared_ptr<const KernelState> prepare_norm(const NodeInfo& node) {
  auto state = std::make_shared<NormState>();
  state->epsilon = static_cast<float>(node.attributes.real("epsilon", 1e-5));
  return state;
}

}  // namespace plait::cpu
