#pragma once
#include <memory>
#include <vector>

#include "core/exec/program.h"
#include "core/schedule/schedule.h"
#include "core/schedule/stage_message.h"

namespace plait {

/// A section of a pipeline stage, for one micro-batch (core/passes/stage/split.h), or a step of a generator. Its inputs are those
/// of the whole program.
struct StageSection {
  int32_t stage = 0;
  Action::Kind kind = Action::Kind::forward;
  std::shared_ptr<const Program> program;
  /// By output of the program, from 0 on: the number that it has in the whole program. What is given, slots and sums follow.
  std::vector<int32_t> results;
  std::vector<StageMessage> takes, gives;
};

}  // namespace plait
