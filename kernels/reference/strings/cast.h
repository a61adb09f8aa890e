#pragma once
// Casts between numbers and strings.
#include "core/exec/kernel.h"

namespace plait::reference {

/// Input 0 as output 0, one of which is of strings. Throws Error(invalid_argument) for a string that is no number of the type.
void cast_strings(const KernelCall& call);

}  // namespace plait::reference
