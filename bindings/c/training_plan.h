#pragma once
// What a trainer's ranks take, from its compiled programs.
#include <vector>

#include "bindings/c/objects.h"

namespace plait::c_api {

/// Bytes of a rank as the engine takes them, without kernels' scratch.
struct EngineBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;  ///< weights: trained, in all versions, and constant
  int64_t arena = 0;                                  ///< of the largest program
  int64_t slots = 0;                                  ///< of micro-batches in flight
  int64_t total() const { return weights + gradients + optimizer + arena + slots; }
};

/// By pipeline coordinate, of a step of full samples of `seq` tokens. Compiles for a rank of each; errors as in plait_trainer_create.
std::vector<EngineBytes> engine_bytes(TrainerPlan& plan, int64_t seq);

}  // namespace plait::c_api
