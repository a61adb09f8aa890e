#pragma once
// What a run of a program costs on a machine.
#include <map>

#include "core/plan/price/instruction_price.h"

namespace plait {

struct ProgramPrice {
  double seconds = 0;  ///< from begin to end
  double flops = 0, bytes = 0;
  double compute_s = 0;  ///< of what is no collective
  /// Seconds in which the device waits for collectives, by kind: asynchronous ones overlap what is computed before they are read.
  std::map<CollectiveKind, double> exposed_s;
  double sent = 0;  ///< bytes that the rank sends

  double exposed() const {
    double out = 0;
    for (const auto& [kind, seconds] : exposed_s) out += seconds;
    return out;
  }
};

/// Runs the instructions on two queues, of kernels and of collectives. `tokens`: of a row; `rows`: tokens of which logits are
/// computed, 0: all.
ProgramPrice price_of(const Program& program, int64_t tokens, const PriceTerms& terms, int64_t rows = 0);

}  // namespace plait
