#pragma once
// The reference kernels of the ops of core/ops/plain.
#include "core/exec/kernel.h"

namespace plait::reference {

void add_plain(KernelTable& table);

}  // namespace plait::reference
