#pragma once
// The parts of register_reference_kernels, one for each file of kernels.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_unary(KernelTable& table);
void add_binary(KernelTable& table);
void add_cast(KernelTable& table);
void add_layout(KernelTable& table);
void add_index(KernelTable& table);
void add_scatter(KernelTable& table);
void add_sequences(KernelTable& table);
void add_create(KernelTable& table);
void add_reduce(KernelTable& table);
void add_order(KernelTable& table);
void add_matmul(KernelTable& table);
void add_determinant(KernelTable& table);
void add_linear(KernelTable& table);
void add_experts(KernelTable& table);
void add_einsum(KernelTable& table);
void add_softmax(KernelTable& table);
void add_normalize(KernelTable& table);
void add_attention(KernelTable& table);
void add_grouped_attention(KernelTable& table);
void add_multi_head_attention(KernelTable& table);
void add_rope(KernelTable& table);
void add_recurrent(KernelTable& table);
void add_generation(KernelTable& table);
void add_quantize(KernelTable& table);
void add_cross_entropy(KernelTable& table);
void add_optimizers(KernelTable& table);
void add_training(KernelTable& table);
void add_packed_attention(KernelTable& table);
void add_packed_recurrent(KernelTable& table);
void add_derivatives(KernelTable& table);
void add_normalize_back(KernelTable& table);

}  // namespace plait::reference
