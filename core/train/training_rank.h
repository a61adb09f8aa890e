#pragma once
// One rank of training: its programs and its shards of weights, gradients and moments. Called by TrainingEngine
// (training_engine.h).
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/train/compile_training.h"
#include "core/ranks/program_groups.h"
#include "core/train/pipeline_rank.h"
#include "core/train/rank_batch.h"

namespace plait {

/// Single-threaded.
class TrainingRank {
 public:
  /// Loads the weights; constants are shared through `weights`. `pool` must outlive it. Throws the errors of reading weights.
  TrainingRank(TrainingModel model, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
               std::shared_ptr<Store> weights, LoadProgress* progress);
  /// Last step of the setup; collective over the world, which must outlive this. Null: a single rank.
  void join(World* world);

  /// Throws Error(invalid_argument) for inputs of another type than the graph's.
  void check(const RankBatch& batch);
  /// Adds the gradients of a step's micro-batches to the sums and returns the sum of the losses, each times its weight; 0 if the
  /// host gives the gradient. If ranks reduce the gradients of the last micro-batch during it, `norm` receives what
  /// `gradient_norm` would return.
  double accumulate(std::span<const RankBatch> batches, double& norm);
  /// A window of steps of an asynchronous pipeline, with their updates: step s has the micro-batches from
  /// s options.micro_batches on; empty ones have no data.
  WindowResult run_window(const WindowOptions& options, std::span<const std::optional<RankBatch>> batches);
  /// Returns the sum of the losses, each times its weight. `losses`, if set, gets those of the targets, rows of all data ranks
  /// concatenated.
  double evaluate(std::span<const RankBatch> batches, std::vector<float>* losses);
  /// The node that makes the first number that is not finite in `accumulate`; "": none does, so weights hold such.
  std::string find_fault(const RankBatch& batch);
  /// With TrainingOptions::host_loss: logits of the tokens `row.rows` of all data ranks, f32 [1, data ranks * r, v],
  /// valid until the next call.
  TensorView logits(const RankBatch& batch);

  /// L2 norm of all gradients of all ranks. Reduces them: do not accumulate before the update.
  double gradient_norm();
  void update(double scale, double rate, int64_t step);
  void clear_gradients();

  /// As PipelineRank::timeline; null without stages.
  const Timeline* timeline() const { return pipeline_ ? &pipeline_->timeline() : nullptr; }

  const TrainingModel& model() const { return model_; }
  bool has(const std::string& key) const { return store_.has(key); }
  /// On the rank's device.
  Tensor array(const std::string& key) const { return store_.get(key); }
  /// A copy on the host.
  Tensor read(const std::string& key) const { return store_.device().fetch(store_.get(key)); }
  /// As Device::overwrite.
  void overwrite(const TensorView& array, FunctionRef<void(const TensorView& host)> fill) {
    store_.device().overwrite(array, fill);
  }
  int64_t store_bytes() const { return store_.bytes(); }
  int64_t run_bytes() const;
  /// Of pipeline stages: what waits in slots between the sections of micro-batches, at most so far; 0 without.
  int64_t slot_bytes() const { return pipeline_ ? pipeline_->slot_bytes(TrainingProgram::accumulate) : 0; }

 private:
  bool has_executor(TrainingProgram program) const { return executors_.contains(program); }
  Executor& executor(TrainingProgram program);
  void make(TrainingProgram program);
  std::unique_ptr<Executor> make(std::shared_ptr<const Program> program);
  void check_untied() const;
  void load_store(const Program& program, LoadProgress* progress);
  double run(Executor& executor, const RankBatch& batch);
  double accumulate(const RankBatch& batch, double& norm);
  PipelineRank::Results run_stages(TrainingProgram program, std::span<const RankBatch> batches);
  StageSections::MakeExecutor section_maker();
  double sum_of(const PipelineRank::Results& results, int32_t number) const;
  double squares(const ArraysByKey& arrays);
  void update(double scale, double rate, int64_t step, const ArraysByKey& arrays);
  void clear_reduced(const ArraysByKey& arrays = {});
  void clear(const Tensor& array);

  const OptimizerOptions optimizer_;
  const int64_t prefix_;  ///< tokens of the prefix
  TrainingModel model_;
  ThreadPool& pool_;
  Store store_;
  ProgramGroups groups_;
  const std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>();
  std::shared_ptr<Blob> arena_;  ///< shared by all executors: one runs at a time
  /// Those of the host's loss are created on first use, since logits take memory.
  std::map<TrainingProgram, std::unique_ptr<Executor>> executors_;
  Tensor logits_;  ///< if the program does not make them in f32
  std::unique_ptr<PipelineRank> pipeline_;  ///< null: there is one stage
};

}  // namespace plait
