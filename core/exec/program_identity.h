#pragma once
// Checks that ranks have the same programs and, by a sample of the bytes, the same weights.
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/exec/program.h"

namespace plait {

struct ProgramIdentity {
  std::string name;     ///< unique among the rank's programs
  std::string program;  ///< its fingerprint
  uint64_t weights = 0;
  bool common = true;  ///< all ranks have it; false: it is compared with equally named ones, of ranks of the same pipeline stage

  auto fields() { return std::tie(name, program, weights, common); }
};
using ProgramIdentities = std::vector<ProgramIdentity>;

ProgramIdentity identity_of(std::string name, const Program& program);

/// Compares the programs of all ranks.
class ProgramAgreement {
 public:
  /// Throws Error(invalid_argument) unless rank `rank` has the common programs of the rank added first, in the same order, and
  /// other programs as those of equal names.
  void add(const ProgramIdentities& programs, int64_t rank);

 private:
  struct Known {
    ProgramIdentity program;
    int64_t rank = 0;
  };
  std::map<std::string, Known, std::less<>> known_;  ///< by name
  std::string common_;                               ///< names
  int64_t first_ = -1;                               ///< rank
};

}  // namespace plait
