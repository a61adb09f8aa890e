#pragma once
// The instruction sets under test: those of this processor, up to PLAIT_ISA if it is set, so that any machine can test what one with
// fewer has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"

namespace plait::test {

/// What PLAIT_ISA names; "" if it is not set.
inline std::string_view isa_limit() {
  const char* limit = std::getenv("PLAIT_ISA");
  return limit ? limit : "";
}

/// Ascending.
inline const std::vector<std::string>& isas() {
  static const std::vector<std::string> names = cpu_isas(isa_limit());
  return names;
}

inline bool has_isa(std::string_view name) { return std::ranges::find(isas(), name) != isas().end(); }

/// Those that there are kernels for.
inline const std::array<std::string, 4> all_isas{"avx2", "avx512", "avx512_bf16", "amx"};

inline std::string why_left_out(const std::string& isa) {
  const std::vector<std::string> here = cpu_isas("");
  const bool has = std::ranges::find(here, isa) != here.end();
  return has ? "PLAIT_ISA=" + std::string(isa_limit()) + " leaves out " + isa : "this processor has no " + isa;
}

/// The first line of a program of tests: what is tested here, and what is left out.
struct InstructionSets : testing::Environment {
  void SetUp() override {
    std::string line = "instruction sets:";
    for (const std::string& isa : isas()) line += " " + isa;
    for (const std::string& isa : all_isas)
      if (!has_isa(isa)) line += "; " + why_left_out(isa);
    std::printf("%s\n", line.c_str());
  }
};
inline testing::Environment* const instruction_sets = testing::AddGlobalTestEnvironment(new InstructionSets);

/// Those of isas() that have a kernel for every op that has fast kernels. The others have only kernels that round to bf16, or multiply
/// integers, and leave the rest to these.
inline const std::vector<std::string>& whole_isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = isas();
    std::erase_if(out, [](const std::string& isa) { return isa != "avx2" && isa != "avx512"; });
    return out;
  }();
  return names;
}

/// The same, and "reference".
inline std::vector<std::string> with_reference(std::vector<std::string> names) {
  names.insert(names.begin(), "reference");
  return names;
}

/// The reference kernels, and those of isas().
inline void register_kernels_under_test(KernelTable& table) {
  register_reference_kernels(table);
  register_cpu_kernels(table, isa_limit());
}

}  // namespace plait::test
