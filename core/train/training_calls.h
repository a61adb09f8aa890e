#pragma once
// What rank 0 of processes that train tells the others.
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/train/training_rank.h"

namespace plait {

/// The engine's functions of these names; a byte, then their arguments.
enum class TrainingCall : uint8_t {
  end = 0,  ///< end_command of core/ranks
  join,
  accumulate,            ///< rows, weight, last
  find_fault,            ///< rows, weight; each rank reports what it found
  evaluate,              ///< rows
  logits,                ///< rows
  backward,              ///< rows; then all take part in a broadcast of the gradients
  accumulate_inputs,     ///< inputs
  evaluate_inputs,       ///< inputs
  find_fault_in_inputs,  ///< inputs; each rank reports what it found
  gradient_norm,
  update,  ///< scale, rate
  clear_gradients,
  set_steps,
  array,                 ///< key
  set_array,             ///< key; then all take part in a broadcast of the whole
  open_checkpoints,      ///< directory, keep; this and what follows: each rank reports
  save,                  ///< step, model, best, state
  wait_for_checkpoints,  ///< nothing
  load                   ///< path
};

ByteWriter as_bytes(std::span<const PackedRow> rows);
ByteWriter as_bytes(const NamedInputs& inputs);

}  // namespace plait
