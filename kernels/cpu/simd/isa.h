#pragma once
// Instruction sets that the kernels of this folder are written for.
#include <string_view>
#include <vector>

namespace plait::cpu {

/// Ascending: each one includes those before it.
enum class Isa : int { avx2, avx512, avx512_bf16, amx };

/// "avx2", "avx512", "avx512_bf16", "amx".
std::string_view isa_name(Isa isa);
/// Of kernels in the table; the reference kernels have 0.
int isa_priority(Isa isa);

/// Those that the processor has and the operating system lets this process use, ascending. AMX has to be asked for
/// (arch_prctl, Linux 5.16); a refusal leaves it out.
std::vector<Isa> usable_isas();

}  // namespace plait::cpu
