#pragma once
// Instruction sets of this folder's kernels.
#include <string_view>
#include <vector>

namespace plait::cpu {

/// Ascending: each one includes those before it.
enum class Isa : int { avx2, avx512, avx512_bf16, amx };

/// "avx2", "avx512", "avx512_bf16", "amx".
std::string_view isa_name(Isa isa);
/// Priority of kernels in the table; the reference kernels have 0.
int isa_priority(Isa isa);

/// Those that the processor has, the operating system lets this process use, and this library was built with (PLAIT_ISAS),
/// ascending. AMX must be requested (arch_prctl, Linux 5.16); it is left out if that fails.
std::vector<Isa> usable_isas();

}  // namespace plait::cpu
