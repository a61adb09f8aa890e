#pragma once
// The parts of register_reference_kernels in this folder.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_string_joins(KernelTable& table);
void add_string_splits(KernelTable& table);
void add_string_normalizer(KernelTable& table);
void add_string_patterns(KernelTable& table);

}  // namespace plait::reference
