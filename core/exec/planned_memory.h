#pragma once
// Memory of runs, known before them.
#include "core/exec/program.h"

namespace plait {

/// Bytes that an executor takes of its device at most, for all its runs.
struct PlannedMemory {
  int64_t arena = 0;
  int64_t inputs = 0;   ///< of a run, in one block; none where the device shares host memory
  int64_t scratch = 0;  ///< the most that an instruction takes
  int64_t all() const { return arena + inputs + scratch; }
};

/// `largest`: the largest values by symbol number, in which sizes do not fall; 0: unknown, and counts as nothing, as do arrays whose
/// sizes depend on data. `threads`: of the executor's pool.
PlannedMemory planned_memory(const Program& program, std::span<const int64_t> largest, int threads);

/// The bounds of the program's symbols, by number.
std::vector<int64_t> bounds_of(const Program& program);

}  // namespace plait
