#pragma once
// Training steps on all ranks of a mesh: micro-batches accumulate gradients, an update ends the step.
#include <memory>
#include <span>
#include <vector>

#include "core/base/function_ref.h"
#include "core/ranks/local_ranks.h"
#include "core/ranks/rank_host.h"
#include "core/train/checkpoint/checkpoint.h"
#include "core/train/training_commands.h"
#include "core/train/pipeline.h"
#include "core/train/training_rank.h"

namespace plait {

/// Not thread-safe. Ranks are threads of the engine; with a world they are processes: this is rank 0, and the others
/// run `serve_training` and handle its commands. An error of one rank while ranks wait for each other ends the world:
/// every later call throws that error.
class TrainingEngine {
 public:
  /// Compiles, and loads the weights. `pool` and `world` must outlive the engine; ranks that are threads divide the
  /// pool's threads. Throws Error: those of compile_training and of reading weights, of any rank; invalid_argument if
  /// the world's size is not the mesh's, or ranks compiled different graphs.
  TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training, ThreadPool& pool,
                 LoadProgress* progress = nullptr, World* world = nullptr);
  /// Last step of the setup, on ranks other than 0; collective over the world.
  void join();

  /// Rows of a micro-batch: one per data rank.
  int64_t data_ranks() const { return mesh_.blocks(mesh_.parts("data")); }
  /// How many micro-batches a step is cut into if it has tokens for them: as many as keep a pipeline's ranks busy; 1 without.
  int64_t micro_batches() const { return pipeline_.micro_batches(); }
  bool in_stages() const { return pipeline_.in_stages(); }
  bool is_asynchronous() const { return pipeline_.is_asynchronous(); }
  /// Runs steps of an asynchronous pipeline, with their updates, as one window that ends with nothing in flight; `rates` are
  /// of learning, by step. Counts the steps that were applied: fewer than all if a norm was not finite, from which step on
  /// nothing changes. Throws as `accumulate`.
  WindowResult run_window(std::span<const std::vector<MicroBatch>> steps, std::span<const double> rates, double clip);
  /// Adds the gradients of the sum of the losses, each times its batch's weight, and returns that sum; 0 with
  /// MicroBatch::gradient (the host's loss), which comes as one batch. In pipeline stages `batches` are those of a schedule.
  /// Throws Error(invalid_argument) before anything is added: for a number of rows
  /// other than `data_ranks`, a row longer than `row_tokens`, a token or label outside the vocabulary; missing,
  /// unknown or mistyped inputs, and a batch that is not a multiple of the data ranks.
  double accumulate(std::span<const MicroBatch> batches);
  double accumulate(const MicroBatch& batch) { return accumulate({&batch, 1}); }
  /// Accumulates the batch again and returns the node that makes the first NaN, otherwise the first infinity, of
  /// finite numbers; "" if there is no such node, so a weight is not finite. Gradients are invalid after it.
  std::string find_fault(const MicroBatch& batch);
  /// The sum of the losses, without gradients; `losses`, if set, receives each label's loss.
  double evaluate(std::span<const MicroBatch> batches, std::vector<float>* losses = nullptr);
  double evaluate(const MicroBatch& batch, std::vector<float>* losses = nullptr) { return evaluate({&batch, 1}, losses); }
  /// With TrainingOptions::host_loss: logits of all tokens of the rows in order, f32 [tokens, v].
  Tensor logits(std::span<const PackedRow> rows);

  /// Of the last step or window: when the ranks of the first pipeline ran their sections; null without stages.
  const Timeline* timeline() const { return ranks_.front()->timeline(); }

  /// L2 norm of all gradients. Do not accumulate between this and the update.
  double gradient_norm();
  /// An optimizer step with the gradients times `scale`; then zeros them. Counts steps.
  void update(double scale, double rate);
  /// Zeros the gradients.
  void clear_gradients();

  const TrainingOptions& training() const { return training_; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps);
  const std::vector<TrainedParameter>& parameters() const { return model().parameters; }
  /// Keys of the parameter's weight and optimizer state.
  std::vector<std::string> arrays(const TrainedParameter& parameter) const;
  /// Of all parameters.
  std::vector<std::string> arrays() const;

  int64_t ranks() const { return mesh_.ranks(); }
  /// Ranks of this process, in order.
  int64_t local_ranks() const { return local_.count(); }
  /// The block of a Store array that a rank of this process holds; the key is one of arrays(), or a parameter's +
  /// ".gradient". Ranks along axes that do not shard it hold the same.
  ArrayBlock block(int64_t local, const std::string& key) const;
  /// Whether the rank of this process has a part of the array: in a pipeline, only ranks whose stages read the parameter do.
  bool holds(int64_t local, const std::string& key) const;
  /// Coordinate on the mesh's axis pipeline.
  int64_t pipeline_rank(int64_t local) const { return mesh_.block(local_.rank(local), mesh_.parts("pipeline")); }
  /// Whether the rank of this process is the first with its part of the array.
  bool is_first(int64_t local, const std::string& key) const;
  /// An array of that dtype and whole shape.
  Tensor zeros(const std::string& key) const;
  /// A whole array, for reading; absent on ranks of a world but 0. Gradients are as far reduced as ranks have them.
  Tensor array(const std::string& key) const;
  /// Each rank takes its part of the whole.
  void set_array(const std::string& key, const TensorView& whole);

  // Checkpoints: each process writes and reads its ranks' parts of arrays(), in a directory that all see.
  /// Throws Error: io, invalid_argument.
  void open_checkpoints(const std::string& directory, int64_t keep);
  /// Like CheckpointWriter::save and `wait`.
  void save(const CheckpointInfo& info, bool best, Saving how = Saving::copied);
  void wait_for_checkpoints();
  /// Throws the errors of Checkpoint::open and `read`.
  void load(const std::string& checkpoint);

  /// Of the first rank of this process.
  const TrainingModel& model() const { return ranks_.front()->model(); }
  /// Bytes of this process: of weights, gradients and moments; and of a run's other memory.
  int64_t store_bytes() const;
  int64_t run_bytes() const;
  /// As TrainingRank::slot_bytes.
  int64_t slot_bytes(int64_t local) const { return ranks_[static_cast<size_t>(local)]->slot_bytes(); }
  const TrainingModel& model(int64_t local) const { return ranks_[static_cast<size_t>(local)]->model(); }
  /// Of a rank of this process: bytes of weights, gradients and moments; and of a run's other memory.
  int64_t state_bytes(int64_t local) const;
  int64_t run_bytes(int64_t local) const { return ranks_[static_cast<size_t>(local)]->run_bytes(); }

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
  std::vector<std::vector<RankBatch>> split(std::span<const MicroBatch> batches, bool dropout);
  int64_t first_holder(const std::string& key) const;
  Shape part_shape(const std::string& key, Shape whole) const;
  const TrainedParameter& parameter_of(const std::string& key) const;
  BatchSplitter splitter() const { return {training_, model(), steps_}; }
  /// Along the axis data.
  int64_t data_rank(int64_t local) const { return mesh_.block(local_.rank(local), mesh_.parts("data")); }

  const TrainingOptions training_;
  const Mesh mesh_;
  const Pipeline pipeline_;
  ThreadPool& pool_;
  World* const world_;  ///< of processes; null: ranks are threads
  LocalRanks local_;
  std::unique_ptr<RankHost> host_;                              ///< for the other processes, on rank 0
  std::shared_ptr<Store> weights_;                              ///< constants that threads share
  std::vector<std::unique_ptr<ThreadPool>> pools_;              ///< by rank of this process
  std::vector<std::unique_ptr<TrainingRank>> ranks_;            ///< of this process
  std::vector<std::unique_ptr<CheckpointWriter>> checkpoints_;  ///< one per rank of this process
  int64_t steps_ = 0;
  double norm_ = -1;  ///< of the gradients, if ranks have reduced them; otherwise -1
};

/// Body of any rank but 0, as `serve_rank` (core/ranks): compiles, and serves the engine on rank 0 until it ends. The
/// arguments are those of rank 0.
void serve_training(World& world, const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                    ThreadPool& pool, LoadProgress* progress = nullptr);

}  // namespace plait
