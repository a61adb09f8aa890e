#pragma once
// How files of kernels/cpu add kernels to the table.
#include "core/exec/kernel.h"
#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// Adds `kernel` under the name and priority of `isa`.
inline void add_kernel(KernelTable& table, Isa isa, Kernel kernel) {
  kernel.isa = isa_name(isa);
  kernel.priority = isa_priority(isa);
  table.add(std::move(kernel));
}

// Conditions on nodes that most kernels share: input `i` exists and has that dtype.
inline bool is(const NodeInfo& node, size_t i, DType dtype) {
  return i < node.inputs.size() && node.inputs[i].dtype == dtype;
}
inline bool is_f32(const NodeInfo& node, size_t i) { return is(node, i, DType::f32); }
inline bool is_f32_or_absent(const NodeInfo& node, size_t i) {
  return i >= node.inputs.size() || is(node, i, DType::none) || is_f32(node, i);
}

}  // namespace plait::cpu
