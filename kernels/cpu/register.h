#pragma once
// The files of this folder that add kernels to the table.
#include "core/exec/kernel.h"
#include "kernels/cpu/isa.h"

namespace plait::cpu {

/// Adds `kernel` under the name and priority of `isa`.
inline void add_kernel(KernelTable& table, Isa isa, Kernel kernel) {
  kernel.isa = isa_name(isa);
  kernel.priority = isa_priority(isa);
  table.add(std::move(kernel));
}

// What most say of the nodes that they take: whether there is an input `i`, of that dtype.
inline bool is(const NodeInfo& node, size_t i, DType dtype) {
  return i < node.inputs.size() && node.inputs[i].dtype == dtype;
}
inline bool is_f32(const NodeInfo& node, size_t i) { return is(node, i, DType::f32); }
inline bool is_f32_or_absent(const NodeInfo& node, size_t i) {
  return i >= node.inputs.size() || is(node, i, DType::none) || is_f32(node, i);
}

// Each adds what it has for exactly this instruction set, which must be usable.
void add_linear(KernelTable& table, Isa isa);
void add_adapters(KernelTable& table, Isa isa);
void add_dropout(KernelTable& table, Isa isa);
void add_experts(KernelTable& table, Isa isa);
void add_experts_back(KernelTable& table, Isa isa);
void add_attention(KernelTable& table, Isa isa);
void add_rows(KernelTable& table, Isa isa);
void add_moves(KernelTable& table, Isa isa);
void add_elementwise(KernelTable& table, Isa isa);
void add_matmul(KernelTable& table, Isa isa);
void add_linear_back(KernelTable& table, Isa isa);
void add_cross_entropy(KernelTable& table, Isa isa);
void add_head_loss(KernelTable& table, Isa isa);
void add_packed_attention(KernelTable& table, Isa isa);
void add_optimizers(KernelTable& table, Isa isa);
void add_normalize_back(KernelTable& table, Isa isa);
void add_scatter_back(KernelTable& table, Isa isa);
void add_reduce(KernelTable& table, Isa isa);
void add_transpose(KernelTable& table, Isa isa);
void add_recurrent(KernelTable& table, Isa isa);
void add_packed_recurrent(KernelTable& table, Isa isa);

}  // namespace plait::cpu
