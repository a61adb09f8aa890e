#pragma once
#include <cstdint>
#include <vector>

namespace plait {

/// What goes from one stage to another after an action, for its micro-batch: one message, of one or more values.
struct StageMessage {
  int32_t stage = 0;            ///< the other stage
  std::vector<int32_t> values;  ///< of what is taken the slots, of what is given the program's outputs; in one order on both sides
};

}  // namespace plait
