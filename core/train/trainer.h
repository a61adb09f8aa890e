#pragma once
// A run of training: which samples a step takes, how fast weights change, when to evaluate, to save and to end.
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/checkpoint/checkpoint.h"
#include "core/train/data/dataset.h"
#include "core/train/learning_rate.h"
#include "core/train/checkpoint/run_lock.h"
#include "core/train/data/sample_order.h"
#include "core/train/training_engine.h"
#include "core/train/log/training_log.h"

namespace plait {

struct TrainerOptions {
  TrainingOptions training;
  LearningRate rate;           ///< its number of steps is the run's
  int64_t steps = 0;           ///< 0: as many as `epochs` need
  double epochs = 1;           ///< how often each sample is seen
  int64_t batch = 8;           ///< samples of a step
  double clip = 1;             ///< longest gradient that counts in whole; 0: any
  uint64_t seed = 0;           ///< of the samples' order
  int64_t evaluate_every = 0;  ///< steps; 0: at the end alone
  int64_t patience = 0;        ///< ends behind so many evaluations in a row without a new best; 0: never
  int64_t save_every = 0;      ///< steps; 0: at the end alone
  int64_t keep = 3;            ///< how many of the newest checkpoints stay, beside the best
  /// Gets log.jsonl, event files, loss.svg, and the folder checkpoints. "": nothing is written.
  std::string directory;
  bool resume = false;  ///< goes on from the newest checkpoint of the directory, where there is one
  std::shared_ptr<const RunLock> lock = {};  ///< of the directory, till the run ends; none: the trainer takes it
};

/// Of the file's tensors, of those that are `trained` but for what they hold: a checkpoint fits models of the same alone, be
/// they what its run began with or not.
std::string fingerprint(const Graph& graph, const std::vector<std::string>& trained);
/// What the fingerprint of the checkpoint has to be for it to fit this model.
std::string fingerprint(const Graph& graph, const CheckpointInfo& info);
/// What a run's checkpoint says of what was trained: weights, or adapters. Throws Error(bad_model).
TrainingOptions trained_by(const CheckpointInfo& info);

/// With the number of steps that they come to. Throws Error(invalid_argument) for options out of range, and for a sample that
/// is longer than a row.
TrainerOptions checked_options(TrainerOptions options, const std::optional<Dataset>& data);

/// Takes the lock of the options' directory, if they name one and have it not: before anything that lasts. Throws Error: what
/// RunLock throws; invalid_argument for a directory that holds a run, where none is to be resumed.
TrainerOptions with_directory(TrainerOptions options);

/// One thread drives it; `cancel` may come from any.
class Trainer {
 public:
  enum class Ending { none, steps, patience, cancelled };
  struct Evaluation {
    double loss = 0;  ///< nats a target; its exponential is the perplexity
    int64_t targets = 0;
  };

  /// Compiles, loads the weights, and with `resume` the checkpoint. `pool` outlives it. Without data steps are made of what
  /// the host gives. With a world this process is its rank 0, the others sit in `serve_training`, and all see the directory.
  /// Throws Error: what compile_training and reading weights throw; invalid_argument for options out of
  /// range, a sample that is longer than a row or the model's context or has ids outside of the vocabulary, a directory that
  /// holds another run, and a checkpoint of another model, of other data or other options, naming which.
  Trainer(Graph graph, const CompileOptions& compile, TrainerOptions options, std::optional<Dataset> data,
          std::optional<Dataset> evaluation, ThreadPool& pool, LoadProgress* progress = nullptr,
          World* world = nullptr);

  /// One step, with what is due behind it: evaluation, a checkpoint, a line of the log. nullopt: the run has ended (see
  /// `ending`), and its last checkpoint is on the disk.
  /// Throws Error(numeric), naming the step, when loss or gradients are not finite: weights and order are then as before
  /// the step. Error(io), of checkpoints also that of the save before.
  std::optional<StepReport> step();
  /// Steps until it has ended.
  void run();
  /// Documents of the host as rows of this trainer (see pack_documents).
  PackedStep pack(const TensorView& ids, const TensorView* labels) const {
    return pack_documents(ids, labels, options_.training.row_tokens, engine_.data_ranks());
  }
  /// A step of these rows, with what is due behind it. Throws like `step`, and Error(cancelled), behind which a checkpoint of
  /// the steps before is on the disk.
  StepReport step(const PackedStep& given);
  // With TrainingOptions::loss, of the graph's own inputs. Reports count the first dim of the largest batch as tokens.
  StepReport step(const NamedInputs& given);
  /// The loss; its `targets` are 1.
  Evaluation evaluate(const NamedInputs& given);
  // A step whose loss is the host's, with TrainingOptions::host_loss: `forward`, any number of `backward`s, `update`.
  /// f32 [tokens, v], in the order of the rows. Throws Error(cancelled).
  Tensor forward(const PackedStep& given);
  /// Adds the gradients of a loss whose gradient by these logits is `gradient`. Throws Error: cancelled, behind which what
  /// was added is forgotten; invalid_argument.
  void backward(const PackedStep& given, const TensorView& gradient);
  /// The end of such a step. Throws like `step`.
  StepReport update();

  /// The step under way ends soon, without an update; what is done is saved.
  void cancel() { cancelled_ = true; }
  Ending ending() const { return ending_; }

  /// Of the present weights over these samples. Throws Error(cancelled).
  Evaluation evaluate(const Dataset& data);
  Evaluation evaluate(const PackedStep& given);

  /// A checkpoint of the present step, on the disk when it returns. Throws Error(invalid_argument) without a directory.
  void save();

  int64_t steps() const { return options_.rate.steps; }  ///< of the whole run; 0: the host's affair
  bool has_data() const { return data_.has_value(); }
  int64_t steps_done() const { return engine_.steps(); }
  /// How often the data were gone through, with the fraction under way; 0 without data.
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
  static GivenStep as_batches(const NamedInputs& inputs);
  StepReport given_step(const GivenStep& given);
  StepReport take(const GivenStep& given);
  void check_rows() const;
  void check_own_loss() const;
  StepReport apply(int64_t tokens, std::chrono::steady_clock::time_point begin);
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
  const std::string model_;                 ///< a fingerprint: checkpoints fit this model alone
  std::optional<SampleOrder> order_;        ///< of the data
  std::unique_ptr<TrainingLog> log_;
  double best_ = std::numeric_limits<double>::infinity();
  int64_t since_best_ = 0;   ///< evaluations
  int64_t saved_step_ = -1;  ///< of the newest checkpoint
  Ending ending_ = Ending::none;
  int64_t given_tokens_ = 0;                           ///< that `backward` added, since the last update
  std::chrono::steady_clock::time_point given_begin_;  ///< of the first of them
  std::atomic<bool> cancelled_{false};
};

}  // namespace plait
