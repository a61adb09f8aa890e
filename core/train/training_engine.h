#pragma once
// Steps of training on all ranks of a mesh: micro-batches add up gradients, and an update ends the step.
#include <memory>
#include <span>
#include <vector>

#include "core/base/function_ref.h"
#include "core/ranks/local_ranks.h"
#include "core/ranks/rank_host.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/training_commands.h"
#include "core/train/training_rank.h"

namespace plait {

/// Not thread-safe: one thread at a time drives it. Ranks are threads of the engine; or, with a world, processes: then this is
/// rank 0, and the others run `serve_training` and handle its commands. An error of one rank while ranks wait for each other
/// ends the world: every call after it throws that error.
class TrainingEngine {
 public:
  /// Compiles, and loads the weights. `pool` and `world` outlive the engine; threads that are ranks share the pool's number
  /// among them. Errors are those of compile_training, and of reading weights, those of the other ranks, too; invalid_argument
  /// for a world of another size than the mesh, and for ranks that have compiled something else.
  TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
                 LoadProgress* progress = nullptr, World* world = nullptr);
  /// The last of the preparations, on ranks other than 0: all ranks of the world call it at once.
  void join();

  /// How many rows a micro-batch has: one for each data rank.
  int64_t data_ranks() const { return mesh_.blocks(mesh_.parts("data")); }
  /// Adds the gradients of the sum of the losses, each times batch.weight, and returns that sum; 0 with batch.gradient, which is
  /// of the host's loss. Throws Error(invalid_argument), before anything is added: for another number of rows than
  /// `data_ranks`, a row of more tokens than `row_tokens`, a token or label outside the vocabulary; for inputs that are missing,
  /// unknown or of another type than the graph's, and a batch that is not a multiple of the data ranks.
  double accumulate(const MicroBatch& batch);
  /// The node that makes the first NaN, or else the first infinity, of finite numbers, when the batch is accumulated once more;
  /// "": none, so a weight is not finite. Gradients are not usable after it.
  std::string find_fault(const MicroBatch& batch);
  /// The sum of the losses, without gradients; `losses`, if set, gets that of each target of the rows.
  double evaluate(const MicroBatch& batch, std::vector<float>* losses = nullptr);
  /// With TrainingOptions::host_loss: of all tokens of the rows in order, f32 [tokens, v].
  Tensor logits(std::span<const PackedRow> rows);

  /// Of all gradients as one vector. Nothing may be added between this and the update.
  double gradient_norm();
  /// A step of the optimizer along `scale` times the gradients, which are zeros after it. Counts steps.
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
  int64_t local_ranks() const { return local_.count(); }
  /// What a rank of this process holds of an array of the Store, by its key: one of arrays(), or a parameter's + ".gradient".
  /// Along axes that do not cut it, all ranks hold the same.
  ArrayBlock block(int64_t local, const std::string& key) const;
  /// Whether the rank of this process is the first of those that have the same part of it.
  bool is_first(int64_t local, const std::string& key) const;
  /// A whole array, for reading; absent on ranks of a world but 0. Gradients as far as ranks have reduced them.
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
  ArrayBlock place(int64_t local, const std::string& key) const;
  void place(ArrayBlock& block, int64_t rank) const;
  bool is_first_of_mesh(int64_t rank, const std::string& key) const;
  void make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress);
  template <class Command>
  void broadcast(const Command& command) const;
  void on_each_process(FunctionRef<void()> task) const;
  template <class Task>
  auto gather(const Task& task);
  template <class Task>
  auto gather_parts(const std::vector<RankBatch>& parts, const Task& task);
  double accumulate_gradient(const MicroBatch& batch);
  std::vector<RankBatch> split(const MicroBatch& batch, bool dropout);
  BatchSplitter splitter() const { return {training_, model(), steps_}; }
  /// Along the axis data.
  int64_t data_rank(int64_t local) const { return mesh_.block(local_.rank(local), mesh_.parts("data")); }

  const TrainingOptions training_;
  const Mesh mesh_;
  ThreadPool& pool_;
  World* const world_;  ///< of processes; null: ranks are threads
  LocalRanks local_;
  std::unique_ptr<RankHost> host_;                              ///< of the other processes, on rank 0
  std::shared_ptr<Store> weights_;                              ///< constants that threads share
  std::vector<std::unique_ptr<ThreadPool>> pools_;              ///< by rank of this process
  std::vector<std::unique_ptr<TrainingRank>> ranks_;            ///< of this process
  std::vector<std::unique_ptr<CheckpointWriter>> checkpoints_;  ///< one for each of them
  int64_t steps_ = 0;
  double norm_ = -1;  ///< of the gradients, if ranks have reduced them; else -1
};

/// Any rank of a world but 0, as `serve_rank` (core/ranks): compiles, and does its part for the engine on rank 0 until that ends.
/// The arguments are those of rank 0.
void serve_training(World& world, const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                    ThreadPool& pool, LoadProgress* progress = nullptr);

}  // namespace plait
