#pragma once
// Adds this folder's kernels to the table. Each function adds those of exactly this instruction set, which must be
// usable. The folder is a part that a library can be built without (PLAIT_PLAIN).
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

/// All of them.
void add_image(KernelTable& table, Isa isa);

void add_convolution(KernelTable& table, Isa isa);
void add_pooling(KernelTable& table, Isa isa);
void add_channels_last_conv(KernelTable& table, Isa isa);
void add_channels_last_pool(KernelTable& table, Isa isa);
void add_channels(KernelTable& table, Isa isa);
void add_transposed_convolution(KernelTable& table, Isa isa);
void add_integer_convolution(KernelTable& table, Isa isa);

}  // namespace plait::cpu
