#pragma once
// Options of a training run, and their checks.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/mesh/mesh.h"
#include "core/passes/base/training.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/checkpoint/run_lock.h"
#include "core/train/data/dataset.h"
#include "core/train/learning_rate.h"

namespace plait {

struct TrainerOptions {
  TrainingOptions training;
  LearningRate rate;           ///< its number of steps is the run's
  int64_t steps = 0;           ///< 0: as many as `epochs` need
  double epochs = 1;           ///< passes over the samples
  int64_t batch = 8;           ///< samples per step
  /// Steps of a window of an asynchronous pipeline, between which weights are evaluated and saved; 0: up to the next
  /// evaluation or checkpoint, at most 16.
  int64_t flush_every = 0;
  double clip = 1;             ///< maximum gradient norm; 0: no clipping
  uint64_t seed = 0;           ///< of the samples' order
  int64_t evaluate_every = 0;  ///< steps; 0: only at the end
  int64_t patience = 0;        ///< ends after so many evaluations in a row without a new best; 0: never
  int64_t save_every = 0;      ///< steps; 0: only at the end
  int64_t keep = 3;            ///< how many of the newest checkpoints are kept, in addition to the best
  /// Where log.jsonl, event files, loss.svg and checkpoints are written; "": nowhere.
  std::string directory;
  /// A file that each step's timeline is drawn into, where there are stages (see write_timeline); "": none.
  std::string timeline;
  bool resume = false;  ///< continues from the newest checkpoint of the directory, if any
  std::shared_ptr<const RunLock> lock = {};  ///< of the directory, until the run ends; null: the trainer takes it
};

/// Throws Error(invalid_argument), "training: " and `what`, unless it holds.
void check_training(bool holds, std::string_view what);
/// Throws Error(invalid_argument) for a sample of more than `most` tokens, which `who` has no place for.
void check_lengths(const Dataset& data, int64_t most, const char* who);

/// Where the run in a directory has its checkpoints.
std::string checkpoints_of(const std::string& directory);

/// Checks the options and sets the number of steps. Throws Error(invalid_argument) for options out of range, and for
/// a sample that is longer than a row.
TrainerOptions checked_options(TrainerOptions options, const std::optional<Dataset>& data);
/// Throws Error(invalid_argument) for a pipeline that the mesh cannot have, for what its schedule does not allow, and for
/// lists whose number of micro-batches the steps do not have.
TrainerOptions checked_pipeline(TrainerOptions options, const Mesh& mesh, const std::optional<Dataset>& data);

/// Takes the lock of the options' directory, if there is one and it is not held: call before expensive work. Throws
/// Error: those of RunLock; invalid_argument if the directory has a run that is not to be resumed.
TrainerOptions with_directory(TrainerOptions options);

}  // namespace plait
