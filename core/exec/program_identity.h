#pragma once
// Checks that ranks have the same programs and, by a sample of the bytes, the same weights.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/exec/program.h"

namespace plait {

struct ProgramIdentity {
  std::string name;     ///< unique among the rank's programs
  std::string program;  ///< its fingerprint
  uint64_t weights = 0;

  auto fields() { return std::tie(name, program, weights); }
};
using ProgramIdentities = std::vector<ProgramIdentity>;

ProgramIdentity identity_of(std::string name, const Program& program);

/// Throws Error(invalid_argument) unless rank `rank` has the programs that rank 0 has, in the same order.
void check_same(const ProgramIdentities& other, int64_t rank, const ProgramIdentities& own);

}  // namespace plait
