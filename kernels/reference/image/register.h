#pragma once
// The parts of register_reference_kernels in this folder.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_convolve(KernelTable& table);
void add_deform(KernelTable& table);
void add_pooling(KernelTable& table);
void add_resize(KernelTable& table);
void add_sampling(KernelTable& table);
void add_regions(KernelTable& table);
void add_boxes(KernelTable& table);
void add_channels_last(KernelTable& table);
void add_windows_back(KernelTable& table);

}  // namespace plait::reference
