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

/// In pipeline stages, ranks have the programs of different stages, cut from one graph.
ProgramIdentities identities_of(const TrainingModel& model, int64_t pipeline_rank) {
  ProgramIdentities out = identities_of(model);
  if (model.stages.count() == 1) return out;
  for (ProgramIdentity& one : out) one.name = cat(one.name, " of pipeline rank ", pipeline_rank), one.common = false;
  for (const auto& [name, sections] : model.sections)
    for (const StageSection& section : sections) {
      out.push_back(identity_of(cat(program_name(name), " ", action_letter(section.kind), " of stage ", section.stage),
                                *section.program));
      out.back().common = false;
    }
  out.push_back({"the graph of all stages", model.graph_fingerprint});
  return out;
}

TensorView flat(const TensorView& view) { return {view.data, view.dtype, {view.elements()}}; }

}  // namespace

/// Only rank 0 of several processes broadcasts.
template <class Command>
void TrainingEngine::broadcast(const Command& command) const {
  if (host_) host_->broadcast(commands::Commands::encode(command));
}

/// Returns task(rank, local) of each rank of this process. An error of one ends the world.
template <class Task>
auto TrainingEngine::gather(const Task& task) {
  return local_.gather([&](int64_t local) { return task(*ranks_[static_cast<size_t>(local)], local); });
}

/// The same with task(rank, its part).
template <class Task>
auto TrainingEngine::gather_parts(const std::vector<RankBatch>& parts, const Task& task) {
  return gather(
      [&](TrainingRank& rank, int64_t local) { return task(rank, parts[static_cast<size_t>(data_rank(local))]); });
}

TrainingEngine::TrainingEngine(const Graph& graph, const CompileOptions& options, const TrainingOptions& training,
                               ThreadPool& pool, LoadProgress* progress, World* world)
    : training_(training),
      mesh_(options.mesh),
      pipeline_(training.pipeline, options.mesh),
      pool_(pool),
      world_(world),
      local_(world ? LocalRanks(*world) : LocalRanks(mesh_.ranks())) {
  const auto compile = [&] {
    make_ranks(graph, options, progress);
    return identities_of(model(), pipeline_rank(0));
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

/// Compiles and loads; needs no communication.
void TrainingEngine::make_ranks(const Graph& graph, const CompileOptions& options, LoadProgress* progress) {
  const int64_t count = local_.count();
  weights_ = count > 1 ? std::make_shared<Store>() : nullptr;
  for (int64_t i = 0; i < count; ++i)
    if (count > 1)
      pools_.push_back(std::make_unique<ThreadPool>(std::max(1, static_cast<int>(pool_.size() / count))));
  ranks_.resize(static_cast<size_t>(count));
  CompileOptions all = options;
  all.rank = local_.rank(0);
  all.stages = pipeline_.stages();
  const auto model_of = training_compiler(graph, all, training_);
  std::vector<LoadProgress> others(static_cast<size_t>(count));
  local_.run([&](int64_t local) {
    const auto i = static_cast<size_t>(local);
    CompileOptions own = all;
    own.rank = local_.rank(local);
    if (const World* world = local_.world(local)) own.local_rank = world->local_rank();
    // The first rank reports for all, and cancelling it cancels all.
    LoadProgress* const its = local > 0 ? &others[i] : progress;
    if (local > 0) own.log = nullptr, own.dump = nullptr, own.progress = its;
    try {
      ranks_[i] = std::make_unique<TrainingRank>(model_of(own), own, training_, count > 1 ? *pools_[i] : pool_,
                                                 weights_, its);
    } catch (...) {
      for (LoadProgress& other : others) other.cancel();
      throw;
    }
  });
  ProgramAgreement agreement;
  for (int64_t local = 0; local < count; ++local)
    agreement.add(identities_of(ranks_[static_cast<size_t>(local)]->model(), pipeline_rank(local)), local);
}

void TrainingEngine::join() {
  local_.run_together([&](int64_t local) { ranks_[static_cast<size_t>(local)]->join(local_.world(local)); });
}

/// Runs a task whose error concerns only this process. Rank 0 throws the first error of all after all have reported;
/// other ranks report theirs.
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
  if (!training_.loss.empty()) ranks_[0]->check(parts[0]);  // the parts of all ranks have equal sizes
  return parts;
}

std::vector<std::vector<RankBatch>> TrainingEngine::split(std::span<const MicroBatch> batches, bool dropout) {
  std::vector<std::vector<RankBatch>> out(static_cast<size_t>(data_ranks()));
  for (const MicroBatch& batch : batches) {
    std::vector<RankBatch> parts = split(batch, dropout);
    for (size_t data = 0; data < parts.size(); ++data) out[data].push_back(std::move(parts[data]));
  }
  return out;
}

double TrainingEngine::accumulate(std::span<const MicroBatch> batches) {
  if (batches.size() == 1 && batches[0].gradient.present()) return accumulate_gradient(batches[0]);
  const std::vector<std::vector<RankBatch>> steps = split(batches, true);
  if (steps[0].empty()) return 0;
  broadcast(commands::Accumulate{{batches.begin(), batches.end()}});
  struct Sums {
    double loss = 0, norm = -1;
  };
  norm_ = -1;
  const Sums sums = gather([&](TrainingRank& rank, int64_t local) {
    Sums out;
    out.loss = rank.accumulate(steps[static_cast<size_t>(data_rank(local))], out.norm);
    return out;
  })[0];
  norm_ = sums.norm;
  return sums.loss;
}

WindowResult TrainingEngine::run_window(std::span<const std::vector<MicroBatch>> steps, std::span<const double> rates,
                                        double clip) {
  WindowOptions options{.rates = {rates.begin(), rates.end()}, .clip = clip, .first_step = steps_ + 1};
  std::vector<std::vector<std::vector<RankBatch>>> parts;  // by step, data rank and micro-batch
  for (size_t i = 0; i < steps.size(); ++i) {
    auto& of = parts.emplace_back(static_cast<size_t>(data_ranks()));
    for (const MicroBatch& batch : steps[i]) {
      // Dropout is drawn by the number of the step.
      std::vector<RankBatch> one = BatchSplitter(training_, model(), steps_ + static_cast<int64_t>(i)).split(batch, true);
      for (size_t data = 0; data < one.size(); ++data) of[data].push_back(std::move(one[data]));
    }
    options.micro_batches = std::max(options.micro_batches, static_cast<int64_t>(of[0].size()));
  }
  broadcast(commands::RunWindow{{steps.begin(), steps.end()}, options.rates, clip});
  norm_ = -1;
  const WindowResult out = gather([&](TrainingRank& rank, int64_t local) {
    std::vector<std::optional<RankBatch>> batches;
    for (const auto& step : parts) {
      const std::vector<RankBatch>& own = step[static_cast<size_t>(data_rank(local))];
      batches.insert(batches.end(), own.begin(), own.end());
      batches.resize(batches.size() + static_cast<size_t>(options.micro_batches) - own.size());
    }
    return rank.run_window(options, batches);
  })[0];
  steps_ += out.updates;
  if (out.updates < static_cast<int64_t>(steps.size()))
    for (const auto& rank : ranks_) rank->clear_gradients();
  return out;
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
    const RankBatch part = splitter.with_gradient(parts[static_cast<size_t>(data)], batch, data, padded);
    ranks_[static_cast<size_t>(local)]->accumulate({&part, 1}, norm);
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

double TrainingEngine::evaluate(std::span<const MicroBatch> batches, std::vector<float>* losses) {
  if (losses) losses->clear();
  const std::vector<std::vector<RankBatch>> steps = split(batches, false);
  if (steps[0].empty()) return 0;
  broadcast(commands::Evaluate{{batches.begin(), batches.end()}, losses != nullptr});
  std::vector<float> found;  // on rank 0
  const double sum = gather([&](TrainingRank& rank, int64_t local) {
    std::vector<float> its;
    const double loss = rank.evaluate(steps[static_cast<size_t>(data_rank(local))], losses ? &its : nullptr);
    if (local == 0) found = std::move(its);
    return loss;
  })[0];
  if (!losses) return sum;
  auto loss = found.begin();
  for (size_t i = 0; i < steps[0].size(); ++i)
    for (const std::vector<RankBatch>& step : steps)
      for (float weight : step[i].row.weights) {
        if (weight != 0) losses->push_back(*loss);
        ++loss;
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

/// The block, with `part` on the rank's device.
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

bool TrainingEngine::holds(int64_t local, const std::string& key) const {
  return ranks_[static_cast<size_t>(local)]->has(key);
}

bool TrainingEngine::is_first(int64_t local, const std::string& key) const {
  return holds(local, key) && is_first_of_mesh(local_.rank(local), key);
}

bool TrainingEngine::is_first_of_mesh(int64_t rank, const std::string& key) const {
  const auto& places = model().places;
  auto place = places.find(key);
  const AxisList cut = place == places.end() ? AxisList{} : place->second.axes(), pipeline = mesh_.parts("pipeline");
  const auto has = [](const AxisList& axes, AxisId axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  for (AxisId axis = 0; axis < mesh_.sub_axes(); ++axis)
    if (!has(cut, axis) && !has(pipeline, axis) && mesh_.coordinate(rank, axis)) return false;
  return mesh_.block(rank, pipeline) == first_holder(key);
}

/// Pipeline coordinate of the first rank that has a parameter's array.
int64_t TrainingEngine::first_holder(const std::string& key) const {
  const TrainingModel& model = this->model();
  if (model.holders.empty()) return 0;
  return model.holders.at(parameter_of(key).key).front();
}

/// The parameter that an array belongs to: its weight, a gradient, or optimizer state.
const TrainedParameter& TrainingEngine::parameter_of(const std::string& key) const {
  const TrainedParameter* out = nullptr;
  for (const TrainedParameter& one : parameters())
    if (key.starts_with(one.key) && (!out || one.key.size() > out->key.size())) out = &one;
  if (!out) throw Error(Code::internal, cat("no parameter has the array ", quote(key)));
  return *out;
}

Tensor TrainingEngine::zeros(const std::string& key) const {
  const TrainedParameter& parameter = parameter_of(key);
  Shape shape = parameter.shape;
  for (const OptimizerState& state : optimizer_states(training_.optimizer.kind, parameter.shape.rank()))
    if (key == parameter.key + state.suffix) shape = state.shape(parameter.shape);
  Tensor out(parameter.dtype(), shape);
  std::memset(out.data(), 0, static_cast<size_t>(out.bytes()));
  return out;
}

/// Ranks that are processes send their blocks to rank 0 in turn; only rank 0 has memory for the whole.
Tensor TrainingEngine::array(const std::string& key) const {
  if (mesh_.ranks() == 1) return ranks_[0]->read(key);
  broadcast(commands::GatherArray{key});
  std::string from = key;
  if (const std::string_view parameter = store_keys::parameter_of_gradient(key); !parameter.empty())
    if (std::string reduced = store_keys::reduced_gradient(parameter); model().places.contains(reduced))
      from = std::move(reduced);
  if (!host_ && world_) {
    if (is_first(0, from)) send_pieces(world_->communicator(), block(0, from).part, 0);
    return {};
  }
  const Tensor out = zeros(from);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    if (!is_first_of_mesh(rank, from)) continue;
    if (world_ && rank > 0) {
      const Tensor received(out.dtype(), part_shape(from, out.shape()));
      receive_pieces(world_->communicator(), received.view(), static_cast<int>(rank));
      ArrayBlock part{.name = from, .part = received.view()};
      place(part, rank);
      put_block(out.view(), part.begin, part.part);
    } else {
      const ArrayBlock part = block(rank, from);
      put_block(out.view(), part.begin, part.part);
    }
  }
  return out;
}

/// The shape of a rank's part of an array; the same on all ranks.
Shape TrainingEngine::part_shape(const std::string& key, Shape whole) const {
  const auto place = model().places.find(key);
  for (int d = 0; place != model().places.end() && d < whole.rank(); ++d)
    whole[d] /= mesh_.blocks(place->second.dims[static_cast<size_t>(d)]);
  return whole;
}

void TrainingEngine::set_array(const std::string& key, const TensorView& whole) {
  broadcast(commands::SetArray{key});
  if (world_) world_->communicator().broadcast(flat(whole), 0);
  for (int64_t local = 0; local < local_ranks(); ++local) {
    if (!holds(local, key)) continue;
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

/// Last, since the first writer waits for the shards of the others.
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
        if (!holds(local, key)) continue;
        const ArrayBlock own = place(local, key);
        ranks_[static_cast<size_t>(local)]->overwrite(
            own.part, [&](const TensorView& host) { checkpoint.read(key, own.begin, host); });
      }
  });
}

// ---- ranks other than 0 ----

namespace {

/// Calls the engine's function for each command.
class TrainingHandler final : public RankHandler {
 public:
  TrainingHandler(World& world, std::unique_ptr<TrainingEngine> engine) : world_(world), engine_(std::move(engine)) {}

  ProgramIdentities programs() const override { return identities_of(engine_->model(), engine_->pipeline_rank(0)); }
  void handle(ByteReader& command) override { commands::Commands::dispatch(command, *this); }

  void handle(const JoinGroups&) { engine_->join(); }
  void handle(const commands::Accumulate& command) { engine_->accumulate(command.batches); }
  void handle(const commands::AccumulateGradient& command) {
    MicroBatch batch = command.batch;
    const Tensor gradient(DType::f32, {batch.tokens(), engine_->model().decoder.vocabulary});
    batch.gradient = gradient.view();
    engine_->accumulate({&batch, 1});
  }
  void handle(const commands::RunWindow& command) { engine_->run_window(command.steps, command.rates, command.clip); }
  void handle(const commands::Evaluate& command) {
    std::vector<float> losses;
    engine_->evaluate(command.batches, command.losses ? &losses : nullptr);
  }
  void handle(const commands::FindFault& command) { report_ok(world_, engine_->find_fault(command.batch)); }
  void handle(const commands::ComputeLogits& command) { engine_->logits(command.rows); }
  void handle(const commands::ComputeNorm&) { engine_->gradient_norm(); }
  void handle(const commands::Update& command) { engine_->update(command.scale, command.rate); }
  void handle(const commands::ClearGradients&) { engine_->clear_gradients(); }
  void handle(const commands::SetSteps& command) { engine_->set_steps(command.steps); }
  void handle(const commands::GatherArray& command) { engine_->array(command.key); }
  void handle(const commands::SetArray& command) {
    engine_->set_array(command.key, engine_->zeros(command.key).view());
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
