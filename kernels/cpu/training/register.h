#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable.
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

void add_dropout(KernelTable& table, Isa isa);
void add_cross_entropy(KernelTable& table, Isa isa);
void add_head_loss(KernelTable& table, Isa isa);
void add_optimizers(KernelTable& table, Isa isa);

}  // namespace plait::cpu
