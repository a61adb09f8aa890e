#pragma once
// A training run: chooses samples, learning rates, and when to evaluate, save and end.
#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/train/data/dataset.h"
#include "core/train/data/sample_order.h"
#include "core/train/log/training_log.h"
#include "core/train/trainer_options.h"
#include "core/train/training_engine.h"

namespace plait {

/// Single-threaded; only `cancel` may be called from any thread.
class Trainer {
 public:
  enum class Ending { none, steps, patience, cancelled };
  struct Evaluation {
    double loss = 0;  ///< nats per label; its exponential is the perplexity
    int64_t targets = 0;
  };

  /// Compiles, loads the weights, and with `resume` the checkpoint. `pool` must outlive it. Without data the host
  /// passes each step's batches. With a world this process is rank 0, the others run `serve_training`, and all see
  /// the directory. Throws Error: those of compile_training and of reading weights; invalid_argument for options out
  /// of range, a sample that is longer than a row or the model's context or has ids outside the vocabulary, a
  /// directory with another run, and a checkpoint of another model, data or options, naming which.
  Trainer(Graph graph, const CompileOptions& compile, TrainerOptions options, std::optional<Dataset> data,
          std::optional<Dataset> evaluation, ThreadPool& pool, LoadProgress* progress = nullptr,
          World* world = nullptr);

  /// One step, then what is due: evaluation, a checkpoint, a line of the log. nullopt: the run has ended (see
  /// `ending`), and its last checkpoint is on disk. Throws Error(numeric), naming the step, if loss or gradients are
  /// not finite; weights and order stay as before the step. Throws Error(io), also that of the previous save.
  std::optional<StepReport> step();
  /// Steps until it has ended.
  void run();
  /// Packs host documents into rows of this trainer (see pack_documents).
  PackedStep pack(const TensorView& ids, const TensorView* labels) const {
    return pack_documents(ids, labels, options_.training.row_tokens, engine_.data_ranks(), engine_.micro_batches());
  }
  /// A step of these rows, then what is due. Throws like `step`, and Error(cancelled) after a checkpoint of the steps
  /// before is on disk.
  StepReport step(const PackedStep& given);
  // With TrainingOptions::loss: steps on the graph's own inputs. Reports count the largest first dim as tokens.
  StepReport step(const NamedInputs& given);
  /// The loss; its `targets` are 1.
  Evaluation evaluate(const NamedInputs& given);
  // Steps with the host's loss (TrainingOptions::host_loss): `forward`, any number of `backward`s, `update`.
  // Logits f32 [tokens, v], in the order of the rows. Throws Error(cancelled).
  Tensor forward(const PackedStep& given);
  /// Adds gradients; `gradient` is that of the host's loss with respect to these logits. Throws Error: cancelled,
  /// after which the added gradients are discarded; invalid_argument.
  void backward(const PackedStep& given, const TensorView& gradient);
  /// The optimizer step. Throws like `step`.
  StepReport update();

  /// Ends the current step soon, without an update; finished steps are saved.
  void cancel() { cancelled_ = true; }
  Ending ending() const { return ending_; }

  /// Loss of the current weights over these samples. Throws Error(cancelled).
  Evaluation evaluate(const Dataset& data);
  Evaluation evaluate(const PackedStep& given);

  /// Saves a checkpoint of the current step; returns when it is on disk. Throws Error(invalid_argument) without a
  /// directory.
  void save();

  int64_t steps() const { return options_.rate.steps; }  ///< of the whole run; 0: the host decides
  bool has_data() const { return data_.has_value(); }
  int64_t steps_done() const { return engine_.steps(); }
  /// Passes over the data, including the fraction of the current one; 0 without data.
  double epochs() const {
    return order_ ? static_cast<double>(order_->taken()) / static_cast<double>(data_->size()) : 0;
  }
  double best_loss() const { return best_; }  ///< of all evaluations; infinite before the first
  const TrainingEngine& engine() const { return engine_; }
  TrainingEngine& engine() { return engine_; }

 private:
  void open_directory();
  void resume(const std::string& path);
  void check_samples(const Dataset& data) const;
  /// A step as micro-batches.
  struct GivenStep {
    std::vector<MicroBatch> batches;
    int64_t tokens = 0;
    bool has_targets = true;
  };
  static GivenStep as_batches(const PackedStep& step);
  GivenStep as_batches(const NamedInputs& inputs) const;
  StepReport given_step(const GivenStep& given);
  StepReport take(const GivenStep& given);
  void take_window();
  int64_t window_steps() const;
  void check_rows() const;
  void check_own_loss() const;
  StepReport apply(int64_t tokens, std::chrono::steady_clock::time_point begin);
  double draw_timeline() const;
  void check_cancelled();
  void check_host_loss() const;
  void follow(StepReport& report);
  double accumulate(const GivenStep& step);
  std::string fault_in(const GivenStep& step);
  double checked(double number, const char* what) const;
  bool evaluate_due(StepReport& report);
  void save_checkpoint(bool best, Saving how);
  bool end_if_due();  ///< whether the run has ended
  void end(Ending ending);
  std::string path(const char* name) const { return options_.directory + "/" + name; }

  TrainerOptions options_;
  std::optional<Dataset> data_;
  std::optional<Dataset> evaluation_;
  TrainingEngine engine_;
  const std::vector<std::string> trained_;  ///< tensors of the file
  const std::string model_;                 ///< a fingerprint: checkpoints fit only this model
  std::optional<SampleOrder> order_;        ///< of the data
  std::unique_ptr<TrainingLog> log_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;   ///< evaluations
  int64_t saved_step_ = -1;  ///< of the newest checkpoint
  Ending ending_ = Ending::none;
  std::deque<StepReport> window_;  ///< steps of the last window that were not returned yet
  int64_t given_tokens_ = 0;                           ///< added by `backward` since the last update
  std::chrono::steady_clock::time_point given_begin_;  ///< of the first `backward`
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
