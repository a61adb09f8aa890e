#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable.
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

void add_recurrent(KernelTable& table, Isa isa);
void add_layers(KernelTable& table, Isa isa);
void add_packed_recurrent(KernelTable& table, Isa isa);

}  // namespace plait::cpu
