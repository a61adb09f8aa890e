#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable.
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

void add_rows(KernelTable& table, Isa isa);
void add_elementwise(KernelTable& table, Isa isa);
void add_comparisons(KernelTable& table, Isa isa);
void add_steps(KernelTable& table, Isa isa);
void add_reduce(KernelTable& table, Isa isa);
void add_transpose(KernelTable& table, Isa isa);
void add_quantize(KernelTable& table, Isa isa);

}  // namespace plait::cpu
