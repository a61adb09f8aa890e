#pragma once
// The parts of register_reference_kernels in this folder.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_recurrent_back(KernelTable& table);
void add_recurrent_layers(KernelTable& table);
void add_transforms(KernelTable& table);
void add_random(KernelTable& table);
void add_ngrams(KernelTable& table);

}  // namespace plait::reference
