#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable.
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

void add_linear(KernelTable& table, Isa isa);
void add_adapters(KernelTable& table, Isa isa);
void add_experts(KernelTable& table, Isa isa);
void add_moves(KernelTable& table, Isa isa);
void add_matmul(KernelTable& table, Isa isa);
void add_integer_products(KernelTable& table, Isa isa);

}  // namespace plait::cpu
