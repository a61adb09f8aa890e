#include "core/train/training_engine.h"

#include <algorithm>
#include <cstring>

#include "core/base/block.h"
#include "core/base/error.h"
#include "core/comm/transfer.h"
#include "core/exec/store_keys.h"
#include "core/mesh/sharding.h"
#include "core/ranks/serve_rank.h"

namespace plait {
namespace {

namespace commands = training_commands;

ProgramIdentities identities_of(const TrainingModel& model) {
  ProgramIdentities out;
  for (const auto& [name, program] : model.programs)
    out.push_back(identity_of(std::string(program_name(name)), *program));
  return out;
}

TensorView flat(const TensorView& view) { return {view.data, view.dtype, {view.elements()}}; }

}  // namespace

/// To no one but from rank 0 of processes.
template <class Command>
void TrainingEngine::broadcast(const Command& command) const {
  if (host_) host_->broadcast(commands::Commands::encode(command));
}

/// What task(rank, local) returns for each rank of this process. An error of one ends the world.
template <class Task>
auto TrainingEngine::gather(const Task& task) {
  return local_.gather([&](int64_t local) { return task(*ranks_[static_cast<size_t>(local)], local); });
}

/// The same of task(rank, its part).
template <class Task>
auto TrainingEngine::gather_parts(const std::vector<RankBatch>& parts, const Task& task) {
  return gather(
      [&](TrainingRank& rank, int64_t local) { return task(rank, parts[static_cast<size_t>(data_rank(local))]); });
}

TrainingEngine::TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                               ThreadPool& pool, LoadProgress* progress, World* world)
    : training_(training),
      mesh_(options.mesh),
      pool_(pool),
      world_(world),
      local_(world ? LocalRanks(*world) : LocalRanks(mesh_.ranks())) {
  const auto compile = [&] {
    make_ranks(graph, options, progress);
    return identities_of(model());
  };
  if (world && world->rank() == 0) {
    host_ = std::make_unique<RankHost>(mesh_, std::shared_ptr<World>(std::shared_ptr<void>(), world));
    host_->agree(compile);
    broadcast(JoinGroups{});
  } else {
    compile();
  }
  if (!world || world->rank() == 0) join();
}

/// Compiles, and loads; ranks have nothing to say to each other yet.
void TrainingEngine::make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress) {
  const int64_t count = local_.count();
  weights_ = count > 1 ? std::make_shared<Store>() : nullptr;
  for (int64_t i = 0; i < count; ++i)
    if (count > 1)
      pools_.push_back(std::make_unique<ThreadPool>(std::max(1, static_cast<int>(pool_.size() / count))));
  ranks_.resize(static_cast<size_t>(count));
  std::vector<LoadProgress> others(static_cast<size_t>(count));
  local_.run([&](int64_t local) {
    const auto i = static_cast<size_t>(local);
    CompileOptions own = options;
    own.rank = local_.rank(local);
    // The first logs the same as all, and its cancel ends the load of all.
    LoadProgress* const its = local > 0 ? &others[i] : progress;
    if (local > 0) own.log = nullptr, own.dump = nullptr, own.progress = its;
    try {
      ranks_[i] =
          std::make_unique<TrainingRank>(graph, own, training_, count > 1 ? *pools_[i] : pool_, weights_, its);
    } catch (...) {
      for (LoadProgress& other : others) other.cancel();
      throw;
    }
  });
  const ProgramIdentities first = identities_of(model());
  for (int64_t local = 1; local < count; ++local)
    check_same(identities_of(ranks_[static_cast<size_t>(local)]->model()), local, first);
}

void TrainingEngine::join() {
  local_.run_together([&](int64_t local) { ranks_[static_cast<size_t>(local)]->join(local_.world(local)); });
}

/// For a task whose error concerns this process only. Rank 0 throws the first error of all, after all have reported; other
/// ranks report theirs.
void TrainingEngine::on_each_process(FunctionRef<void()> task) const {
  if (host_) {
    host_->gather_with(task, host_->others(), RankHost::Patience::endless);
  } else if (world_) {
    report_result(*world_, [&] {
      task();
      report_ok(*world_);
    });
  } else {
    task();
  }
}

std::vector<RankBatch> TrainingEngine::split(const MicroBatch& batch, bool dropout) {
  std::vector<RankBatch> parts = splitter().split(batch, dropout);
  if (!training_.loss.empty()) ranks_[0]->check(parts[0]);  // one rank's parts are as large as another's
  return parts;
}

double TrainingEngine::accumulate(const MicroBatch& batch) {
  if (batch.gradient.present()) return accumulate_gradient(batch);
  const std::vector<RankBatch> parts = split(batch, true);
  if (parts.empty()) return 0;
  broadcast(commands::Accumulate{batch});
  struct Sums {
    double loss = 0, norm = -1;
  };
  norm_ = -1;
  const Sums sums = gather_parts(parts, [](TrainingRank& rank, const RankBatch& part) {
    Sums out;
    out.loss = rank.accumulate(part, out.norm);
    return out;
  })[0];
  norm_ = sums.norm;
  return sums.loss;
}

double TrainingEngine::accumulate_gradient(const MicroBatch& batch) {
  const BatchSplitter splitter = this->splitter();
  const std::vector<RankBatch> parts = splitter.split_for_logits(batch.rows);
  broadcast(commands::AccumulateGradient{batch});
  if (world_) world_->communicator().broadcast(flat(batch.gradient), 0);
  norm_ = -1;
  local_.run_together([&](int64_t local) {
    const int64_t data = data_rank(local);
    Tensor padded;
    double norm = -1;
    ranks_[static_cast<size_t>(local)]->accumulate(
        splitter.with_gradient(parts[static_cast<size_t>(data)], batch, data, padded), norm);
  });
  return 0;
}

std::string TrainingEngine::find_fault(const MicroBatch& batch) {
  const std::vector<RankBatch> parts = split(batch, true);
  if (parts.empty()) return {};
  broadcast(commands::FindFault{batch});
  std::vector<std::string> faults =
      gather_parts(parts, [](TrainingRank& rank, const RankBatch& part) { return rank.find_fault(part); });
  if (host_)
    for (const Report& report : host_->gather(host_->others(), RankHost::Patience::deadline))
      faults.push_back(report.as<std::string>());
  const auto first =
      std::find_if(faults.begin(), faults.end(), [](const std::string& fault) { return !fault.empty(); });
  return first == faults.end() ? "" : *first;
}

double TrainingEngine::evaluate(const MicroBatch& batch, std::vector<float>* losses) {
  if (losses) losses->clear();
  const std::vector<RankBatch> parts = split(batch, false);
  if (parts.empty()) return 0;
  broadcast(commands::Evaluate{batch});
  const double sum =
      gather_parts(parts, [](TrainingRank& rank, const RankBatch& part) { return rank.evaluate(part); })[0];
  if (losses) {
    const std::vector<float> found = ranks_[0]->losses();
    auto loss = found.begin();
    for (const RankBatch& part : parts)
      for (float weight : part.row.weights) {
        if (weight != 0) losses->push_back(*loss);
        ++loss;
      }
  }
  return sum;
}

Tensor TrainingEngine::logits(std::span<const PackedRow> rows) {
  const std::vector<RankBatch> parts = splitter().split_for_logits(rows);
  broadcast(commands::ComputeLogits{{rows.begin(), rows.end()}});
  const TensorView made =
      gather_parts(parts, [](TrainingRank& rank, const RankBatch& part) { return rank.logits(part); })[0];
  int64_t tokens = 0;
  for (const PackedRow& row : rows) tokens += row.tokens();
  Tensor out(DType::f32, {tokens, made.shape[2]});
  std::byte* to = out.data();
  for (size_t i = 0; i < rows.size(); ++i) {
    const TensorView part = rows_of(made, static_cast<int64_t>(i) * parts[i].row.row.tokens(), rows[i].tokens());
    to = std::copy_n(part.data, part.bytes(), to);
  }
  return out;
}

double TrainingEngine::gradient_norm() {
  if (norm_ >= 0) return norm_;
  broadcast(commands::ComputeNorm{});
  return norm_ = gather([](TrainingRank& rank, int64_t) { return rank.gradient_norm(); })[0];
}

void TrainingEngine::update(double scale, double rate) {
  if (mesh_.ranks() > 1) gradient_norm();
  broadcast(commands::Update{scale, rate});
  ++steps_;
  local_.run_together([&](int64_t local) { ranks_[static_cast<size_t>(local)]->update(scale, rate, steps_); });
  norm_ = -1;
}

void TrainingEngine::set_steps(int64_t steps) {
  broadcast(commands::SetSteps{steps});
  steps_ = steps;
}

void TrainingEngine::clear_gradients() {
  broadcast(commands::ClearGradients{});
  for (const auto& rank : ranks_) rank->clear_gradients();
  norm_ = -1;
}

std::vector<std::string> TrainingEngine::arrays(const TrainedParameter& parameter) const {
  std::vector<std::string> out{parameter.key};
  if (!training_.gradients) return out;  // and no optimizer
  for (const OptimizerState& state : optimizer_states(training_.optimizer.kind, parameter.shape.rank()))
    out.push_back(parameter.key + state.suffix);
  return out;
}

std::vector<std::string> TrainingEngine::arrays() const {
  std::vector<std::string> out;
  for (const TrainedParameter& parameter : parameters()) {
    const std::vector<std::string> kept = arrays(parameter);
    out.insert(out.end(), kept.begin(), kept.end());
  }
  return out;
}

ArrayBlock TrainingEngine::block(int64_t local, const std::string& key) const {
  ArrayBlock out = place(local, key);
  const Tensor part = ranks_[static_cast<size_t>(local)]->read(key);
  const bool shared = part.data() == out.part.data;
  out.part = part.view();
  if (!shared) out.copy = part;
  return out;
}

/// The block with `part` on the rank's device.
ArrayBlock TrainingEngine::place(int64_t local, const std::string& key) const {
  ArrayBlock out{.name = key, .part = ranks_[static_cast<size_t>(local)]->array(key).view()};
  place(out, local_.rank(local));
  return out;
}

/// Sets what follows from the part's shape, which is the same on all ranks of the mesh.
void TrainingEngine::place(ArrayBlock& block, int64_t rank) const {
  const auto& places = model().places;
  auto place = places.find(block.name);
  block.begin = block.whole = block.part.shape;
  for (int d = 0; d < block.whole.rank(); ++d) {
    const AxisList axes = place == places.end() ? AxisList{} : place->second.dims[static_cast<size_t>(d)];
    block.begin[d] = block.part.shape[d] * mesh_.block(rank, axes);
    block.whole[d] = block.part.shape[d] * mesh_.blocks(axes);
  }
}

bool TrainingEngine::is_first(int64_t local, const std::string& key) const {
  return is_first_of_mesh(local_.rank(local), key);
}

bool TrainingEngine::is_first_of_mesh(int64_t rank, const std::string& key) const {
  const auto& places = model().places;
  auto place = places.find(key);
  const AxisList cut = place == places.end() ? AxisList{} : place->second.axes();
  for (AxisId axis = 0; axis < mesh_.sub_axes(); ++axis)
    if (std::find(cut.begin(), cut.end(), axis) == cut.end() && mesh_.coordinate(rank, axis)) return false;
  return true;
}

/// Ranks that are processes send their blocks to rank 0 in turn; only rank 0 has memory for the whole.
Tensor TrainingEngine::array(const std::string& key) const {
  if (mesh_.ranks() == 1) return ranks_[0]->read(key);
  broadcast(commands::GatherArray{key});
  std::string from = key;
  if (const std::string_view parameter = store_keys::parameter_of_gradient(key); !parameter.empty())
    if (std::string reduced = store_keys::reduced_gradient(parameter); ranks_[0]->has(reduced))
      from = std::move(reduced);
  if (!host_ && world_) {
    if (is_first(0, from)) send_pieces(world_->communicator(), block(0, from).part, 0);
    return {};
  }
  ArrayBlock part = block(0, from);
  Tensor out(part.part.dtype, part.whole);
  put_block(out.view(), part.begin, part.part);
  const Tensor received = world_ ? Tensor(part.part.dtype, part.part.shape) : Tensor();
  for (int64_t rank = 1; rank < ranks(); ++rank) {
    if (!is_first_of_mesh(rank, from)) continue;
    if (world_) {
      receive_pieces(world_->communicator(), received.view(), static_cast<int>(rank));
      part.part = received.view();
      place(part, rank);
    } else {
      part = block(rank, from);
    }
    put_block(out.view(), part.begin, part.part);
  }
  return out;
}

void TrainingEngine::set_array(const std::string& key, const TensorView& whole) {
  broadcast(commands::SetArray{key});
  if (world_) world_->communicator().broadcast(flat(whole), 0);
  for (int64_t local = 0; local < local_ranks(); ++local) {
    const ArrayBlock own = place(local, key);
    ranks_[static_cast<size_t>(local)]->overwrite(
        own.part, [&](const TensorView& host) { take_block(whole, own.begin, host); });
  }
}

int64_t TrainingEngine::store_bytes() const {
  int64_t sum = weights_ ? weights_->bytes() : 0;
  for (const auto& rank : ranks_) sum += rank->store_bytes();
  return sum;
}

int64_t TrainingEngine::run_bytes() const {
  int64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->run_bytes();
  return sum;
}

int64_t TrainingEngine::state_bytes(int64_t local) const {
  const TrainingRank& rank = *ranks_[static_cast<size_t>(local)];
  int64_t sum = 0;
  for (const TrainedParameter& parameter : parameters()) {
    std::vector<std::string> keys = arrays(parameter);
    for (std::string& key : store_keys::gradient_keys(parameter.key)) keys.push_back(std::move(key));
    for (const std::string& key : keys)
      if (rank.has(key)) sum += rank.array(key).bytes();
  }
  return sum;
}

void TrainingEngine::open_checkpoints(const std::string& directory, int64_t keep) {
  broadcast(commands::OpenCheckpoints{directory, keep});
  on_each_process([&] {
    checkpoints_.clear();
    for (int64_t local = 0; local < local_ranks(); ++local)
      checkpoints_.push_back(std::make_unique<CheckpointWriter>(
          CheckpointOptions{.directory = directory, .writer = local_.rank(local), .writers = ranks(), .keep = keep}));
  });
}

void TrainingEngine::save(const CheckpointInfo& info, bool best, Saving how) {
  broadcast(commands::SaveCheckpoint{info, best, how});
  on_each_process([&] {
    for (int64_t local = 0; local < local_ranks(); ++local) {
      std::vector<ArrayBlock> blocks;
      for (const std::string& key : arrays())
        if (is_first(local, key)) blocks.push_back(block(local, key));
      checkpoints_[static_cast<size_t>(local)]->save(info, blocks, best, how);
    }
  });
}

/// The first writer waits for the others' shards, so it comes last.
void TrainingEngine::wait_for_checkpoints() {
  broadcast(commands::WaitForCheckpoints{});
  on_each_process([&] {
    for (size_t i = checkpoints_.size(); i-- > 0;) checkpoints_[i]->wait();
  });
}

void TrainingEngine::load(const std::string& path) {
  broadcast(commands::LoadCheckpoint{path});
  on_each_process([&] {
    const Checkpoint checkpoint = Checkpoint::open(path);
    for (int64_t local = 0; local < local_ranks(); ++local)
      for (const std::string& key : arrays()) {
        const ArrayBlock own = place(local, key);
        ranks_[static_cast<size_t>(local)]->overwrite(
            own.part, [&](const TensorView& host) { checkpoint.read(key, own.begin, host); });
      }
  });
}

// ---- ranks other than 0 ----

namespace {

/// Calls the engine's function of each command's name.
class TrainingHandler final : public RankHandler {
 public:
  TrainingHandler(World& world, std::unique_ptr<TrainingEngine> engine) : world_(world), engine_(std::move(engine)) {}

  ProgramIdentities programs() const override { return identities_of(engine_->model()); }
  void handle(ByteReader& command) override { commands::Commands::dispatch(command, *this); }

  void handle(const JoinGroups&) { engine_->join(); }
  void handle(const commands::Accumulate& command) { engine_->accumulate(command.batch); }
  void handle(const commands::AccumulateGradient& command) {
    MicroBatch batch = command.batch;
    const Tensor gradient(DType::f32, {batch.tokens(), engine_->model().decoder.vocabulary});
    batch.gradient = gradient.view();
    engine_->accumulate(batch);
  }
  void handle(const commands::Evaluate& command) { engine_->evaluate(command.batch); }
  void handle(const commands::FindFault& command) { report_ok(world_, engine_->find_fault(command.batch)); }
  void handle(const commands::ComputeLogits& command) { engine_->logits(command.rows); }
  void handle(const commands::ComputeNorm&) { engine_->gradient_norm(); }
  void handle(const commands::Update& command) { engine_->update(command.scale, command.rate); }
  void handle(const commands::ClearGradients&) { engine_->clear_gradients(); }
  void handle(const commands::SetSteps& command) { engine_->set_steps(command.steps); }
  void handle(const commands::GatherArray& command) { engine_->array(command.key); }
  void handle(const commands::SetArray& command) {
    const ArrayBlock part = engine_->block(0, command.key);
    engine_->set_array(command.key, Tensor(part.part.dtype, part.whole).view());
  }
  void handle(const commands::OpenCheckpoints& command) {
    engine_->open_checkpoints(command.directory, command.keep);
  }
  void handle(const commands::SaveCheckpoint& command) { engine_->save(command.info, command.best, command.how); }
  void handle(const commands::WaitForCheckpoints&) { engine_->wait_for_checkpoints(); }
  void handle(const commands::LoadCheckpoint& command) { engine_->load(command.path); }

 private:
  World& world_;
  const std::unique_ptr<TrainingEngine> engine_;
};

}  // namespace

void serve_training(World& world, const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                    ThreadPool& pool, LoadProgress* progress) {
  serve_rank(world, [&]() -> std::unique_ptr<RankHandler> {
    return std::make_unique<TrainingHandler>(
        world, std::make_unique<TrainingEngine>(graph, options, training, pool, progress, &world));
  });
}

}  // namespace plait
