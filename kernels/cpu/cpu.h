#pragma once
// Fast kernels for x86-64 processors, of the ops that dominate generation and training; others use the reference.
//
// All are batch invariant: the bits of an output row depend on the instruction set, but not on the other rows of the
// call, on their number, or on the number of threads.
#include <string>
#include <string_view>
#include <vector>

#include "core/exec/kernel.h"

namespace plait {

/// Adds the kernels of every usable instruction set up to `isa_limit`: "avx2", "avx512", "avx512_bf16", "amx", "" for
/// no limit, "reference" for none. Throws Error(invalid_argument) for other names.
void register_cpu_kernels(KernelTable& table, std::string_view isa_limit);

/// Names of these instruction sets, ascending; empty on a processor without AVX2.
std::vector<std::string> cpu_isas(std::string_view isa_limit = "");

}  // namespace plait
