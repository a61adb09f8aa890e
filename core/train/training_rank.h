#pragma once
// One rank's part of training: its programs, its shards of weights, gradients and moments. TrainingEngine (training_engine.h)
// calls it.
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "core/ranks/program_groups.h"
#include "core/train/rank_batch.h"

namespace plait {

/// One thread drives it.
class TrainingRank {
 public:
  /// Compiles, and loads the weights; constants are shared through `weights`. With a world all its ranks make theirs at
  /// once. `pool` outlives it. Errors are those of compile_training, and of reading weights.
  TrainingRank(Graph graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
               std::shared_ptr<Store> weights, LoadProgress* progress);
  /// The last of the preparations; all ranks of the world call it at once. The world outlives this. Null: there is no other
  /// rank.
  void join(World* world);

  /// Throws Error(invalid_argument) for inputs of another type than the graph's.
  void check(const RankBatch& batch);
  /// Adds gradients to the sums and returns the sum of the losses, each times its weight; 0 where the host gives the gradient.
  /// If ranks reduce the gradients of the last micro-batch at once, `norm` becomes what `gradient_norm` would return.
  double accumulate(const RankBatch& batch, double& norm);
  double evaluate(const RankBatch& batch) { return run(executor(TrainingProgram::evaluate), batch); }
  /// Per-target losses of the last `evaluate`, rows concatenated.
  std::vector<float> losses() const;
  /// The node that makes the first number that is not finite in `accumulate`; "": none does, so weights hold such.
  std::string find_fault(const RankBatch& batch);
  /// With TrainingOptions::host_loss: of the tokens `row.rows` of all data ranks, f32 [1, data ranks * r, v], valid until the
  /// next call.
  TensorView logits(const RankBatch& batch);

  /// Of all gradients of all ranks as one vector. Gradients are settled then: nothing is to be added before the update.
  double gradient_norm();
  void update(double scale, double rate, int64_t step);
  void clear_gradients();

  const TrainingModel& model() const { return model_; }
  bool has(const std::string& key) const { return store_.has(key); }
  /// On the rank's device.
  Tensor array(const std::string& key) const { return store_.get(key); }
  /// For the host to read.
  Tensor read(const std::string& key) const { return store_.device().fetch(store_.get(key)); }
  /// As Device::overwrite.
  void overwrite(const TensorView& array, FunctionRef<void(const TensorView& host)> fill) {
    store_.device().overwrite(array, fill);
  }
  int64_t store_bytes() const { return store_.bytes(); }
  int64_t run_bytes() const;

 private:
  bool has_executor(TrainingProgram program) const { return executors_.contains(program); }
  Executor& executor(TrainingProgram program);
  void make(TrainingProgram program);
  double run(Executor& executor, const RankBatch& batch);
  void run(Executor& executor, const TrainingRow& row, std::map<std::string_view, TensorView> more);
  static std::vector<TensorView> inputs_by_name(const Executor& executor, const RankBatch& batch);
  void clear_reduced();
  void clear(const std::string& key);

  const OptimizerOptions optimizer_;
  const int64_t prefix_;  ///< tokens of it
  TrainingModel model_;
  ThreadPool& pool_;
  Store store_;
  ProgramGroups groups_;
  const std::shared_ptr<MemoryBudget> budget_ = std::make_shared<MemoryBudget>();
  std::shared_ptr<Blob> arena_;  ///< of all executors: one runs at a time
  /// Those of the host's loss are made when they are first used, for logits take memory.
  std::map<TrainingProgram, std::unique_ptr<Executor>> executors_;
  Tensor logits_;  ///< if the program does not make them in f32
};

}  // namespace plait
