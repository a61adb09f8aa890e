#pragma once
// One rank's part of training: its programs, its shards of weights, gradients and moments. It does what the engine of its
// process tells it (training_engine.h).
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/comm/world.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "core/train/data/packing.h"

namespace plait {

/// A row as the programs take it: all ranks of a mesh have as many tokens and targets at once.
struct TrainingRow {
  PackedRow row;                      ///< its labels are in `rows` and `labels`
  std::vector<int32_t> rows, labels;  ///< tokens that predict something, and what
  std::vector<float> weights;         ///< of each
  std::vector<int64_t> keys;          ///< of all tokens, for dropout; -1: none
  Places places = {};                 ///< with a prefix
};

/// What a graph that is trained as it stands is given, by the names of its inputs.
using NamedInputs = std::map<std::string, TensorView, std::less<>>;

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

  /// The sum of the row's losses, each times its weight; gradients are added to the sums.
  double accumulate(const TrainingRow& row) { return run(*accumulate_, row); }
  /// The node that makes the first number that is not finite in `accumulate`; "": none does, so weights hold such.
  std::string find_fault(const TrainingRow& row);
  /// The same of a step's last row; `norm` becomes what `gradient_norm` would return, where ranks settle it at once, else it stays.
  double accumulate_last(const TrainingRow& row, double& norm);
  double evaluate(const TrainingRow& row) { return run(*evaluate_, row); }
  /// Of the evaluation before: each target's loss, of all rows one behind the other.
  std::vector<float> losses() const;
  // With TrainingOptions::host_loss; `row.rows` says whose logits are meant.
  /// Of all data ranks, f32 [1, data ranks * r, v], valid until the next call.
  TensorView logits(const TrainingRow& row);
  /// Adds the gradients of a loss whose gradient by the row's logits is `given`, f32 [1, r, v].
  void accumulate(const TrainingRow& row, const TensorView& given);

  // With TrainingOptions::loss: by name, this rank's part of what the graph takes.
  /// Throws Error(invalid_argument) for those that are of another type than the graph's.
  void check(const NamedInputs& inputs) { evaluate_->bind(in_order(*evaluate_, inputs)); }
  double accumulate(const NamedInputs& inputs) { return run(*accumulate_, inputs); }
  double accumulate_last(const NamedInputs& inputs, double& norm);
  double evaluate(const NamedInputs& inputs) { return run(*evaluate_, inputs); }
  std::string find_fault(const NamedInputs& inputs);

  /// Of all gradients of all ranks as one vector. Gradients are settled then: nothing is to be added before the update.
  double gradient_norm();
  void update(double scale, double rate, int64_t step);
  void clear_gradients();

  const TrainingModel& model() const { return model_; }
  bool has(const std::string& key) const { return store_.has(key); }
  Tensor array(const std::string& key) const { return store_.get(key); }
  int64_t store_bytes() const { return store_.bytes(); }
  int64_t run_bytes() const;

 private:
  double run(Executor& executor, const TrainingRow& row);
  double run(Executor& executor, const NamedInputs& inputs);
  static std::vector<TensorView> in_order(const Executor& executor, const NamedInputs& inputs);
  template <class Inputs>
  std::string fault_of(const Inputs& inputs);
  void run(Executor& executor, const TrainingRow& row, std::map<std::string_view, TensorView> more);
  std::unique_ptr<Executor> make(const std::shared_ptr<const Program>& program);
  template <class Inputs>
  double accumulate_and_settle(const Inputs& inputs, double& norm);
  void clear_settled();
  Executor& later(std::unique_ptr<Executor>& executor, const std::shared_ptr<const Program>& program);

  const OptimizerOptions optimizer_;
  const int64_t prefix_;  ///< tokens of it
  TrainingModel model_;
  ThreadPool& pool_;
  Store store_;
  World* world_ = nullptr;
  std::map<std::vector<int32_t>, std::unique_ptr<Communicator>> splits_;  ///< by members
  const std::shared_ptr<RunRoom> room_ = std::make_shared<RunRoom>();
  std::shared_ptr<Blob> arena_;  ///< of all executors: one runs at a time
  std::unique_ptr<Executor> accumulate_, settle_, evaluate_, norm_, update_;
  Tensor logits_;                                 ///< where they are not made in f32
  std::unique_ptr<Executor> forward_, backward_;  ///< made when they are first asked for: logits take memory
};

}  // namespace plait
