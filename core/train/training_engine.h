#pragma once
// What one step of training is made of: micro-batches that add up gradients, and the update behind them; on all ranks of a
// mesh at once.
#include <memory>
#include <span>
#include <vector>

#include "core/train/checkpoint.h"
#include "core/train/training_rank.h"

namespace plait {

/// Not thread-safe: one thread drives it. On a mesh of several ranks these are threads, which the engine starts for each
/// call; or, with a world, processes: then each has an engine, and all make the same calls with the same arguments. An error
/// of one rank in the midst of what they do together ends the world: every call after it throws that error.
class TrainingEngine {
 public:
  /// Compiles, and loads the weights. `pool` outlives the engine; threads that are ranks share its number among them. Errors
  /// are those of compile_training, and of reading weights; invalid_argument for a world of another size than the mesh.
  TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
                 LoadProgress* progress = nullptr, World* world = nullptr);
  ~TrainingEngine();

  /// How many rows a micro-batch has: one for each place along the mesh's axis `data`.
  int64_t data_ranks() const;
  /// Adds the gradients of the sum of the rows' losses, each times `weight`, and returns that sum: with 1 / targets of the
  /// whole step as weight, the micro-batches of a step add up to its mean. Rows may be empty. Throws
  /// Error(invalid_argument) for another number of rows than `data_ranks`, a row of more tokens than `row_tokens`, and for
  /// a token or label outside the vocabulary: nothing is added then.
  /// `last`: nothing is added behind it before the update, so that ranks may settle the gradients meanwhile.
  double accumulate(std::span<const PackedRow> rows, double weight, bool last = false);
  double accumulate(const PackedRow& row, double weight) { return accumulate({&row, 1}, weight); }
  /// The node that makes the first NaN, or else the first infinity, of numbers that are none, when these rows are accumulated
  /// once more; "": none does, for weights hold it. Gradients are of no use behind it.
  std::string find_fault(std::span<const PackedRow> rows, double weight);
  /// The sum of the rows' losses, without gradients; `losses`, if set, gets that of each target.
  double evaluate(std::span<const PackedRow> rows, std::vector<float>* losses = nullptr);
  double evaluate(const PackedRow& row, std::vector<float>* losses = nullptr) { return evaluate({&row, 1}, losses); }
  // With TrainingOptions::host_loss, on one rank, of all tokens of a row in order; its labels are not looked at.
  /// f32 [t, v].
  Tensor logits(const PackedRow& row);
  /// Adds the gradients of a loss whose gradient by these logits is `given`, f32 [t, v].
  void accumulate(const PackedRow& row, const TensorView& given);
  /// Of all gradients as one vector. Nothing is to be added between this and the update.
  double gradient_norm();
  /// A step of the optimizer along `scale` times the gradients, which are zeros behind it. Counts steps.
  void update(double scale, double rate);
  /// Forgets the gradients.
  void clear_gradients();

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<TrainedParameter>& parameters() const { return model().parameters; }
  /// By key what makes the parameter and its next steps what they are: its weight, and what the optimizer keeps.
  std::vector<std::string> arrays(const TrainedParameter& parameter) const;

  int64_t ranks() const { return mesh_.ranks(); }
  /// Ranks of this process, in order.
  int64_t local_ranks() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank_number(int64_t local) const { return first_ + local; }
  /// What a rank of this process has of an array of the Store, by its key: one of arrays(), or a parameter's + ".gradient".
  /// Its elements may be written. Along axes that do not cut it, all ranks have the same.
  ArrayBlock block(int64_t local, const std::string& key) const;
  /// Whether the rank is the first of those that have the same of it.
  bool is_first(int64_t local, const std::string& key) const;
  /// A whole array; on one rank the array itself, whose elements may be written. Gradients as far as they are settled. With a
  /// world all processes ask at once.
  Tensor array(const std::string& key) const;

  /// Of the first rank of this process.
  const TrainingModel& model() const { return ranks_.front()->model(); }
  /// Bytes of weights, gradients and moments of this process; and of what a run needs besides.
  int64_t store_bytes() const;
  int64_t run_bytes() const;
  /// Those of weights, gradients and moments that a rank has.
  int64_t state_bytes(int64_t local) const;

 private:
  void make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress);
  template <class Task>
  void each(const Task& task) const;
  std::vector<TrainingRow> aligned(std::span<const PackedRow> rows, double weight, bool drops) const;
  std::vector<int64_t> keys_of(const PackedRow& row, bool drops) const;
  TrainingRow whole(const PackedRow& row) const;
  void check(const PackedRow& row) const;
  int64_t row_of(int64_t local) const;

  const TrainingOptions training_;
  const Mesh mesh_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<World>> worlds_;  ///< of threads
  World* const world_;                          ///< of processes
  const int64_t first_;
  std::shared_ptr<Store> weights_;                    ///< constants that threads share
  std::vector<std::unique_ptr<ThreadPool>> pools_;    ///< by rank of this process
  std::vector<std::unique_ptr<TrainingRank>> ranks_;  ///< of this process
  int64_t steps_ = 0;
  double norm_ = -1;  ///< of the gradients, where they are settled
};

}  // namespace plait
