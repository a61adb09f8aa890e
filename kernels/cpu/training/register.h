#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable. The folder is a part that a library can be built without (PLAIT_TRAIN).
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

/// All of them. Before add_linear, whose kernels take all Linears.
void add_training(KernelTable& table, Isa isa);

void add_dropout(KernelTable& table, Isa isa);
void add_cross_entropy(KernelTable& table, Isa isa);
void add_head_loss(KernelTable& table, Isa isa);
void add_optimizers(KernelTable& table, Isa isa);
void add_linear_back(KernelTable& table, Isa isa);
void add_experts_back(KernelTable& table, Isa isa);
void add_normalize_back(KernelTable& table, Isa isa);
void add_scatter_back(KernelTable& table, Isa isa);
void add_layers_back(KernelTable& table, Isa isa);

}  // namespace plait::cpu
