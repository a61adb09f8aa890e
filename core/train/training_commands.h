#pragma once
// Commands that rank 0 of training processes sends to the others: functions of TrainingEngine, and their arguments.
#include <string>
#include <tuple>

#include "core/ranks/commands.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/micro_batch.h"

namespace plait::training_commands {

struct Accumulate {
  std::vector<MicroBatch> batches;
  auto fields() { return std::tie(batches); }
};
/// Accumulates with MicroBatch::gradient, which all ranks then broadcast.
struct AccumulateGradient {
  MicroBatch batch;
  auto fields() { return std::tie(batch); }
};
/// A window of steps of an asynchronous pipeline, with their updates.
struct RunWindow {
  std::vector<std::vector<MicroBatch>> steps;
  std::vector<double> rates;
  double clip = 0;
  auto fields() { return std::tie(steps, rates, clip); }
};
struct Evaluate {
  std::vector<MicroBatch> batches;
  bool losses = false;  ///< whether rank 0 gets those of the targets
  auto fields() { return std::tie(batches, losses); }
};
/// Each rank reports the node that it found, or "".
struct FindFault {
  MicroBatch batch;
  auto fields() { return std::tie(batch); }
};
struct ComputeLogits {
  std::vector<PackedRow> rows;
  auto fields() { return std::tie(rows); }
};
struct ComputeNorm {};
struct Update {
  double scale = 1, rate = 0;
};
struct ClearGradients {};
struct SetSteps {
  int64_t steps = 0;
};

/// The first rank of each block of the array of that key sends it to rank 0.
struct GatherArray {
  std::string key;
  auto fields() { return std::tie(key); }
};
/// All ranks broadcast the whole array of that key.
struct SetArray {
  std::string key;
  auto fields() { return std::tie(key); }
};

// Each rank reports the result of these.
struct OpenCheckpoints {
  std::string directory;
  int64_t keep = 0;
  auto fields() { return std::tie(directory, keep); }
};
struct SaveCheckpoint {
  CheckpointInfo info;
  bool best = false;
  Saving how = Saving::copied;
  auto fields() { return std::tie(info, best, how); }
};
struct WaitForCheckpoints {};
struct LoadCheckpoint {
  std::string path;
  auto fields() { return std::tie(path); }
};

using Commands = CommandSet<JoinGroups, Accumulate, AccumulateGradient, RunWindow, Evaluate, FindFault, ComputeLogits,
                            ComputeNorm, Update, ClearGradients, SetSteps, GatherArray, SetArray, OpenCheckpoints,
                            SaveCheckpoint, WaitForCheckpoints, LoadCheckpoint>;

}  // namespace plait::training_commands
