#pragma once
// What one step of training is made of: micro-batches that add up gradients, and the update behind them; on all ranks of a
// mesh at once.
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/function_ref.h"
#include "core/comm/report.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/training_calls.h"
#include "core/train/training_rank.h"

namespace plait {

/// Not thread-safe: one thread at a time drives it. On a mesh of several ranks these are threads, which the engine starts for
/// each call; or, with a world, processes: then this is rank 0, and the others sit in `serve_training` and do what it says. An
/// error of one rank in the midst of what they do together ends the world: every call after it throws that error.
class TrainingEngine {
 public:
  /// Compiles, and loads the weights. `pool` and `world` outlive the engine; threads that are ranks share the pool's number
  /// among them. Errors are those of compile_training, and of reading weights, those of the other ranks, too; invalid_argument
  /// for a world of another size than the mesh, and for ranks that have compiled something else.
  TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
                 LoadProgress* progress = nullptr, World* world = nullptr);
  /// The others' `serve_training` returns.
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
  // With TrainingOptions::host_loss, of all tokens of the rows in order; labels are not looked at.
  /// f32 [tokens of all rows, v].
  Tensor logits(std::span<const PackedRow> rows);
  /// Adds the gradients of a loss whose gradient by these logits is `given`, f32 [tokens of all rows, v].
  void accumulate(std::span<const PackedRow> rows, const TensorView& given);
  // With TrainingOptions::loss. The ranks of `data` share the batch out, of which all inputs that have it as their first dim
  // have as many. Throw Error(invalid_argument) for inputs that are missing, or of another type than the graph's, for names
  // that it does not have, and for a batch that is no multiple of the data ranks.
  /// Adds the gradients, and returns the loss. Nothing is to be added between this and the update.
  double accumulate(const NamedInputs& inputs);
  double evaluate(const NamedInputs& inputs);
  std::string find_fault(const NamedInputs& inputs);

  /// Of all gradients as one vector. Nothing is to be added between this and the update.
  double gradient_norm();
  /// A step of the optimizer along `scale` times the gradients, which are zeros behind it. Counts steps.
  void update(double scale, double rate);
  /// Forgets the gradients.
  void clear_gradients();

  const TrainingOptions& training() const { return training_; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);
  const std::vector<TrainedParameter>& parameters() const { return model().parameters; }
  /// By key what makes the parameter and its next steps what they are: its weight, and what the optimizer keeps.
  std::vector<std::string> arrays(const TrainedParameter& parameter) const;
  /// Of all parameters.
  std::vector<std::string> arrays() const;

  int64_t ranks() const { return mesh_.ranks(); }
  /// Ranks of this process, in order.
  int64_t local_ranks() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank_number(int64_t local) const { return first_ + local; }
  /// What a rank of this process has of an array of the Store, by its key: one of arrays(), or a parameter's + ".gradient".
  /// Its elements may be written. Along axes that do not cut it, all ranks have the same.
  ArrayBlock block(int64_t local, const std::string& key) const;
  /// Whether the rank is the first of those that have the same of it.
  bool is_first(int64_t local, const std::string& key) const;
  /// A whole array; on one rank the array itself, whose elements may be written. Gradients as far as they are settled.
  Tensor array(const std::string& key) const;
  /// Each rank takes its part of the whole.
  void set_array(const std::string& key, const TensorView& whole);

  // Checkpoints: each process writes and reads what its ranks have of arrays(), in a directory that all see.
  /// Throws Error: io, invalid_argument.
  void open_checkpoints(const std::string& directory, int64_t keep);
  /// As CheckpointWriter::save, and `wait`.
  void save(const CheckpointInfo& info, bool best, Saving how = Saving::copied);
  void wait_for_checkpoints();
  /// Throws what Checkpoint::open and `read` throw.
  void load(const std::string& checkpoint);

  /// Of the first rank of this process.
  const TrainingModel& model() const { return ranks_.front()->model(); }
  /// Bytes of weights, gradients and moments of this process; and of what a run needs besides.
  int64_t store_bytes() const;
  int64_t run_bytes() const;
  /// Those of weights, gradients and moments that a rank has.
  int64_t state_bytes(int64_t local) const;

 private:
  friend void serve_training(World& world, const Graph& graph, const CompileOptions& options,
                             const TrainingOptions& training, ThreadPool& pool, LoadProgress* progress);
  void make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress);
  void join();
  bool leads() const { return world_ && world_->rank() == 0; }
  void agree(std::optional<Error> failure);
  void tell(TrainingCall call, ByteWriter rest = {}) const;
  bool handle(std::span<const std::byte> command);
  void by_themselves(FunctionRef<void()> task) const;
  template <class Task>
  void on_ranks(const Task& task) const;
  template <class Task>
  void each(const Task& task) const;
  template <class Task>
  auto gather(const Task& task) const;
  std::vector<TrainingRow> aligned(std::span<const PackedRow> rows, double weight, bool drops) const;
  std::vector<int64_t> keys_of(const PackedRow& row, bool drops) const;
  std::vector<TrainingRow> whole(std::span<const PackedRow> rows) const;
  void fill_up(std::vector<TrainingRow>& rows, int64_t tokens, bool drops) const;
  void check(const NamedInputs& inputs) const;
  NamedInputs part_of(const NamedInputs& inputs, int64_t local) const;
  std::string first_fault(std::vector<std::string> faults) const;
  int64_t check(std::span<const PackedRow> rows) const;
  int64_t row_of(int64_t local) const;

  const TrainingOptions training_;
  const Mesh mesh_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<World>> worlds_;  ///< of threads
  World* const world_;                          ///< of processes
  const int64_t first_;
  std::shared_ptr<Store> weights_;                              ///< constants that threads share
  std::vector<std::unique_ptr<ThreadPool>> pools_;              ///< by rank of this process
  std::vector<std::unique_ptr<TrainingRank>> ranks_;            ///< of this process
  std::vector<std::unique_ptr<CheckpointWriter>> checkpoints_;  ///< one for each of them
  int64_t steps_ = 0;
  double norm_ = -1;  ///< of the gradients, where they are settled
};

/// Any rank of a world but 0, with the world's communicator at its disposal: compiles, and does its part for the engine on rank
/// 0, until that ends. What goes wrong before the first step is reported to rank 0, and this returns when rank 0 says so; what
/// goes wrong later ends the world, and is thrown, as is the end of the world by others. The arguments are those of rank 0.
void serve_training(World& world, const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                    ThreadPool& pool, LoadProgress* progress = nullptr);

}  // namespace plait
