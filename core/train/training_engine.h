#pragma once
// What one step of training is made of: micro-batches that add up gradients, and the update behind them.
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/thread_pool.h"
#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "core/train/packing.h"

namespace plait {

/// Not thread-safe: one thread drives it.
class TrainingEngine {
 public:
  /// Compiles, and loads the weights. `pool` outlives the engine. Errors are those of compile_training, and of reading weights.
  TrainingEngine(Graph graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
                 LoadProgress* progress = nullptr);

  /// Adds the gradients of the sum of the row's losses, each times `weight`, and returns that sum: with 1 / targets of the
  /// whole step as weight, the rows of a step add up to its mean. Throws Error(invalid_argument) for a row of more tokens than
  /// `row_tokens`, and for a token or label outside the vocabulary.
  double accumulate(const PackedRow& row, double weight);
  /// The sum of the row's losses, without gradients; `losses`, if set, gets that of each target.
  double evaluate(const PackedRow& row, std::vector<float>* losses = nullptr);
  // With TrainingOptions::host_loss, of all tokens of a row in order; labels are not looked at.
  /// f32 [t, v].
  Tensor logits(const PackedRow& row);
  /// Adds the gradients of a loss whose gradient by the logits is `given`, f32 [t, v].
  void accumulate(const PackedRow& row, const TensorView& given);

  /// Of all gradients as one vector.
  double gradient_norm();
  /// A step of the optimizer along `scale` times the gradients, which are zeros behind it. Counts steps.
  void update(double scale, double rate);
  /// Forgets the gradients.
  void clear_gradients();

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<TrainedParameter>& parameters() const { return model_.parameters; }
  /// What the optimizer keeps for each parameter, by the end of its key: ".first", and of AdamW ".second".
  std::vector<std::string> moments() const;
  /// An array of the Store by its key: a parameter's, + ".gradient", or + one of moments(). Its elements may be written.
  Tensor array(const std::string& key) const { return store_.get(key); }
  const TrainingModel& model() const { return model_; }
  /// Bytes of weights, gradients and moments; and of what a run needs besides.
  int64_t store_bytes() const { return store_.bytes(); }
  int64_t run_bytes() const;

 private:
  std::unique_ptr<Executor> make(const std::shared_ptr<const Program>& program, LoadProgress* progress = nullptr);
  double run(Executor& executor, const PackedRow& row, double weight);
  void run(Executor& executor, const PackedRow& row, const std::vector<int32_t>& rows,
           std::map<std::string_view, TensorView> more);

  const TrainingOptions training_;
  ThreadPool& pool_;
  TrainingModel model_;
  Store store_;
  std::unique_ptr<Executor> accumulate_, evaluate_, norm_, update_;
  std::unique_ptr<Executor> forward_, backward_;  ///< made when they are first asked for: logits take memory
  int64_t steps_ = 0;
};

}  // namespace plait
