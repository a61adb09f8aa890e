#pragma once
// The parts of register_reference_kernels in this folder.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_features(KernelTable& table);
void add_labels(KernelTable& table);
void add_linear_models(KernelTable& table);
void add_support_vectors(KernelTable& table);
void add_trees(KernelTable& table);

}  // namespace plait::reference
