#pragma once
// What tests/unit/comm/mpi_faults.py asks of a process that it starts under mpirun.
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "core/base/text.h"
#include "core/comm/options.h"

namespace plait::test {

/// By PLAIT_FAULT, "dies 2 5 memory 60 10": what fails ("throws", "stalls", "dies"), on which rank, at which step, how ranks
/// exchange, their deadline in seconds, and within how many seconds all others have to hear of it. nullopt: the script does not
/// run this.
struct ProcessFault {
  std::string kind;
  int rank = 0, step = 0;
  CommOptions options;
  double bound_s = 0;

  static std::optional<ProcessFault> asked() {
    const char* text = std::getenv("PLAIT_FAULT");
    if (!text) return std::nullopt;
    const auto words = split(text, ' ');
    ProcessFault out{words[0], std::stoi(words[1]), std::stoi(words[2]), {}, std::stod(words[5])};
    out.options.share_memory = words[3] == "memory";
    out.options.deadline_s = std::stod(words[4]);
    return out;
  }
  /// What a rank that stalls does: nothing, until the others have given it up for certain.
  void stall() const { std::this_thread::sleep_for(std::chrono::duration<double>(2 * options.deadline_s)); }
};

}  // namespace plait::test
