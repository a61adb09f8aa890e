#pragma once
// The fast kernels for x86-64 processors: for what generation spends its time in, the rest is left to the reference.
//
// All of them keep batch invariance: the bits of a row of the output do not depend on the other rows of the call, on
// how many there are, or on the number of threads; they do depend on the instruction set.
#include <string>
#include <string_view>
#include <vector>

#include "core/exec/kernel.h"

namespace plait {

/// Adds the kernels of every instruction set usable here up to `isa_limit`: "avx2", "avx512", "avx512_bf16", "amx",
/// "" for no limit, "reference" for none at all. Throws Error(invalid_argument) for any other name.
void register_cpu_kernels(KernelTable& table, std::string_view isa_limit);

/// The instruction sets usable here by their names, ascending; empty on a processor without AVX2.
std::vector<std::string> cpu_isas();

}  // namespace plait
