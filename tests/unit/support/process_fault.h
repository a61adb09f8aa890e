#pragma once
// What tests/unit/comm/mpi_faults.py asks of a process that it starts under mpirun.
#include <cstdlib>
#include <optional>
#include <string>

#include "core/base/text.h"
#include "core/comm/options.h"

namespace plait::test {

/// By PLAIT_FAULT, "dies 2 5 memory": what fails ("throws", "stalls", "dies"), on which rank, at which step, and how ranks
/// exchange. nullopt: the script does not run this.
struct ProcessFault {
  std::string kind;
  int rank = 0, step = 0;
  CommOptions options;

  static std::optional<ProcessFault> asked() {
    const char* text = std::getenv("PLAIT_FAULT");
    if (!text) return std::nullopt;
    const auto words = split(text, ' ');
    ProcessFault out{words[0], std::stoi(words[1]), std::stoi(words[2]), {}};
    out.options.deadline_s = 1;
    out.options.share_memory = words[3] == "memory";
    return out;
  }
};

}  // namespace plait::test
