#pragma once
// By what ranks know that they have the same program, and the same weights: as far as a sample of these tells.
#include <cstdint>
#include <string>

#include "core/exec/program.h"

namespace plait {

struct ProgramIdentity {
  std::string program;
  uint64_t weights = 0;
};
ProgramIdentity identity_of(const Program& program);

/// Throws Error(invalid_argument) unless what rank `rank` has is what rank 0 has.
void check_same(const ProgramIdentity& other, int64_t rank, const ProgramIdentity& own);

}  // namespace plait
