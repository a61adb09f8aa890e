#pragma once
// What a rank of a pipeline does in addition: it runs its stages' sections by lists, and sums with the ranks of other stages.
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/comm/world.h"
#include "core/exec/store.h"
#include "core/passes/train/compile_training.h"
#include "core/ranks/action_runner.h"
#include "core/ranks/program_groups.h"
#include "core/schedule/timeline.h"
#include "core/train/async_window.h"
#include "core/train/batch_inputs.h"
#include "core/train/pipeline.h"
#include "core/ranks/stage_sections.h"

namespace plait {

/// Single-threaded. All ranks of a pipeline call its functions together.
class PipelineRank {
 public:
  /// All must outlive this.
  PipelineRank(const PipelineOptions& options, const TrainingModel& model, int64_t rank, Store& store,
               std::shared_ptr<MemoryBudget> budget);
  /// Makes the communicators; collective over the world. Null: this rank has all stages.
  void join(World* world, ProgramGroups& groups);

  int64_t coordinate() const { return coordinate_; }

  /// Of each micro-batch what this rank computes of the program's results, by number.
  using Results = std::vector<std::map<int32_t, Tensor>>;
  /// Runs a program on the micro-batches of a step. `make`: of the program's sections, when it first runs.
  Results run(TrainingProgram program, std::span<BatchInputs> batches, const StageSections::MakeExecutor& make);
  /// Runs a window of an asynchronous schedule: step s has the micro-batches from s options.micro_batches on, of which null ones
  /// have no data. Losses are of all ranks.
  WindowResult run_window(const WindowOptions& options, std::span<const std::unique_ptr<BatchInputs>> batches,
                          const StageSections::MakeExecutor& make, AsyncWindow::Optimizer optimizer);
  /// Throws Error(invalid_argument) for inputs that an evaluation cannot take.
  void check(BatchInputs inputs, const StageSections::MakeExecutor& make);
  /// For `TrainingRank::find_fault`.
  void set_watch(TrainingProgram program, std::string* origin) { sections_.at(program)->set_watch(origin); }

  /// Of the last step or window: when the ranks of this pipeline ran their sections.
  const Timeline& timeline() const { return timeline_; }
  /// Bytes of a program's slots so far.
  int64_t slot_bytes(TrainingProgram program) const {
    const auto found = sections_.find(program);
    return found == sections_.end() ? 0 : found->second->slot_bytes();
  }

  /// Sums of numbers over the ranks.
  void sum(std::span<double> numbers) const;
  /// Sends a result from the rank that runs the last stage for a micro-batch to all. Returns `result`.
  Tensor& share_result(Tensor& result, int32_t micro_batch) const;
  /// Adds up the gradients of parameters that several stages read, so that each holder has their sum.
  void sum_over_holders() const;

 private:
  void run(const Pipeline::Plan& plan, StageWork& work);
  StageSections& sections(TrainingProgram program, const StageSections::MakeExecutor& make);
  int32_t last_rank(int32_t micro_batch) const;

  const TrainingModel& model_;
  Store& store_;
  const std::shared_ptr<MemoryBudget> budget_;
  const int64_t rank_, coordinate_;
  Pipeline pipeline_;
  std::map<TrainingProgram, std::unique_ptr<StageSections>> sections_;
  std::unique_ptr<Communicator> control_;  ///< the ranks of the pipeline, for host memory; null: this has all stages
  Communicator* across_ = nullptr;         ///< the same for arrays on the device
  /// Of parameters with several holders, of which this rank is one: the holders, for arrays on the device.
  std::map<std::vector<int32_t>, Communicator*> holders_;
  Timeline timeline_;
};

}  // namespace plait
