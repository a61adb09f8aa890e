#include "core/train/training_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/exec/store_keys.h"

namespace plait {
namespace {

template <class T>
Tensor row_of(DType dtype, const std::vector<T>& values) {
  return Tensor::of<T>(dtype, {1, static_cast<int64_t>(values.size())}, values);
}

/// Length of each token's document with its prefix; 1 for padding.
std::vector<int32_t> lengths_of(const PackedRow& row, int64_t prefix) {
  std::map<int32_t, int32_t> lengths;
  for (int32_t segment : row.segments) ++lengths[segment];
  std::vector<int32_t> out;
  for (int32_t segment : row.segments)
    out.push_back(segment < 0 ? 1 : lengths[segment] + static_cast<int32_t>(prefix));
  return out;
}

/// Position of each token in its document, after the prefix.
std::vector<int32_t> positions_of(const PackedRow& row, int64_t prefix) {
  std::vector<int32_t> out = row.positions;
  for (size_t i = 0; i < out.size(); ++i)
    if (row.segments[i] >= 0) out[i] += static_cast<int32_t>(prefix);
  return out;
}

Tensor copy_as(const TensorView& view, DType dtype) {
  Tensor out(view.dtype, view.shape);
  std::memcpy(out.data(), view.data, static_cast<size_t>(out.bytes()));
  if (view.dtype == dtype) return out;
  return materialize({{}, std::move(out), {{RecipeStep::Kind::cast, {}, dtype}}});
}

double number_of(const TensorView& view) {
  const Tensor wide = copy_as(view, DType::f64);
  return *wide.as<double>();
}

/// Converts floats to the program's dtype.
void run_floats(Executor& executor, std::vector<TensorView> inputs) {
  const Program& program = executor.program();
  std::vector<Tensor> converted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const DType dtype = program.buffers[static_cast<size_t>(program.inputs[i])].dtype;
    if (!is_float(dtype) || inputs[i].dtype == dtype) continue;
    converted.push_back(copy_as(inputs[i], dtype));
    inputs[i] = converted.back().view();
  }
  executor.run(inputs);
}

bool is_of_host_loss(TrainingProgram name) {
  return name == TrainingProgram::forward || name == TrainingProgram::backward;
}

}  // namespace

TrainingRank::TrainingRank(Graph graph, const CompileOptions& options, const TrainingOptions& training,
                           ThreadPool& pool, std::shared_ptr<Store> weights, LoadProgress* progress)
    : optimizer_(training.optimizer),
      prefix_(training.prefix.tokens),
      model_(compile_training(std::move(graph), options, training)),
      pool_(pool),
      store_(std::move(weights)) {
  int64_t arena_bytes = 0;
  for (const auto& [name, program] : model_.programs) {
    if (is_of_host_loss(name)) continue;
    arena_bytes = std::max(arena_bytes, program->arena_bytes);
    store_.load(*program, std::vector<int64_t>(static_cast<size_t>(program->symbols.size())), &pool, progress);
  }
  arena_ = budget_->take(arena_bytes, store_.device());
}

void TrainingRank::join(World* world) {
  if (world) groups_ = ProgramGroups(world->rank(), split_world(*world, store_.device()));
  for (const auto& [name, program] : model_.programs)
    if (!is_of_host_loss(name)) make(name);
}

void TrainingRank::make(TrainingProgram name) {
  const std::shared_ptr<const Program>& program = model_.programs.at(name);
  executors_[name] = std::make_unique<Executor>(program, store_, pool_, budget_, groups_.of(*program), arena_);
}

/// Collective over the world.
Executor& TrainingRank::executor(TrainingProgram name) {
  if (!has_executor(name)) {
    const Program& program = model_.program(name);
    store_.load(program, std::vector<int64_t>(static_cast<size_t>(program.symbols.size())), &pool_, nullptr);
    make(name);
  }
  return *executors_.at(name);
}

/// `more` are the inputs in addition to the row's.
void TrainingRank::run(Executor& executor, const TrainingRow& given, std::map<std::string_view, TensorView> more) {
  const PackedRow& row = given.row;
  // The ids are the input with the file's name.
  const Tensor tokens = row_of<int64_t>(DType::i64, {row.ids.begin(), row.ids.end()});
  const Tensor positions = row_of(DType::i32, positions_of(row, prefix_)),
               segments = row_of(DType::i32, row.segments), lengths = row_of(DType::i32, lengths_of(row, prefix_)),
               rows = row_of(DType::i32, given.rows), keys = row_of(DType::i64, given.keys);
  const Places& places = given.places;
  const Tensor tokens_of_places = row_of(DType::i32, places.tokens), prefixes = row_of(DType::i32, places.prefixes),
               segments_of_places = row_of(DType::i32, places.segments),
               of_tokens = row_of(DType::i32, places.of_tokens);
  const auto count = static_cast<int64_t>(places.is_prefix.size());
  const Tensor is_prefix = Tensor::of<uint8_t>(DType::boolean, {1, count, 1, 1}, places.is_prefix);
  more.insert({{"positions", positions.view()},
               {"segments", segments.view()},
               {"lengths", lengths.view()},
               {"rows", rows.view()},
               {"keys", keys.view()},
               {"place_tokens", tokens_of_places.view()},
               {"place_prefixes", prefixes.view()},
               {"place_is_prefix", is_prefix.view()},
               {"place_segments", segments_of_places.view()},
               {"token_places", of_tokens.view()}});
  std::vector<TensorView> inputs;
  for (const std::string& name : executor.program().input_names) {
    auto found = more.find(name);
    inputs.push_back(found == more.end() ? tokens.view() : found->second);
  }
  run_floats(executor, std::move(inputs));
}

double TrainingRank::run(Executor& executor, const RankBatch& batch) {
  if (!batch.inputs.empty()) {
    executor.run(inputs_by_name(executor, batch));
    return *executor.output(0).as<float>();
  }
  const Tensor labels = row_of(DType::i32, batch.row.labels), weights = row_of(DType::f32, batch.row.weights);
  run(executor, batch.row, {{"labels", labels.view()}, {"weights", weights.view()}});
  return number_of(executor.output(0));
}

/// Inputs of a graph with its own loss, in the program's order.
std::vector<TensorView> TrainingRank::inputs_by_name(const Executor& executor, const RankBatch& batch) {
  std::vector<TensorView> out;
  for (const std::string& name : executor.program().input_names) out.push_back(batch.inputs.find(name)->second);
  return out;
}

void TrainingRank::check(const RankBatch& batch) {
  Executor& evaluate = executor(TrainingProgram::evaluate);
  evaluate.bind(inputs_by_name(evaluate, batch));
}

double TrainingRank::accumulate(const RankBatch& batch, double& norm) {
  if (batch.gradient.present()) {
    run(executor(TrainingProgram::backward), batch.row, {{"gradients", batch.gradient}});
    return 0;
  }
  if (!batch.last || !has_executor(TrainingProgram::settle)) return run(executor(TrainingProgram::accumulate), batch);
  Executor& settle = executor(TrainingProgram::settle);
  const double loss = run(settle, batch);
  norm = number_of(settle.output(1));
  clear_reduced();
  return loss;
}

std::vector<float> TrainingRank::losses() const {
  const Tensor all = copy_as(executors_.at(TrainingProgram::evaluate)->output(1), DType::f32);
  return {all.as<float>(), all.as<float>() + all.elements()};
}

std::string TrainingRank::find_fault(const RankBatch& batch) {
  std::string out;
  Executor& accumulate = executor(TrainingProgram::accumulate);
  accumulate.set_watch(&out);
  run(accumulate, batch);
  accumulate.set_watch(nullptr);
  return out;
}

TensorView TrainingRank::logits(const RankBatch& batch) {
  Executor& forward = executor(TrainingProgram::forward);
  run(forward, batch.row, {});
  const TensorView made = forward.output(0);
  if (made.dtype == DType::f32) return made;
  logits_ = copy_as(made, DType::f32);
  return logits_.view();
}

double TrainingRank::gradient_norm() {
  Executor& norm = executor(TrainingProgram::norm);
  norm.run({});
  clear_reduced();
  return number_of(norm.output(0));
}

/// Zeros this rank's partial gradients that were reduced.
void TrainingRank::clear_reduced() {
  for (const TrainedParameter& parameter : model_.parameters)
    if (has(store_keys::reduced_gradient(parameter.key))) clear(store_keys::gradient(parameter.key));
}

void TrainingRank::clear(const std::string& key) {
  const Tensor sum = array(key);
  Device& device = store_.device();
  device.fill(device.queue(Device::Use::compute), sum.data(), 0, sum.bytes());
}

void TrainingRank::update(double scale, double rate, int64_t step) {
  const auto number = static_cast<double>(step);
  const std::map<std::string_view, double> numbers{{"scale", scale},
                                                   {"rate", rate},
                                                   {"correction1", 1 - std::pow(optimizer_.beta1, number)},
                                                   {"correction2", 1 - std::pow(optimizer_.beta2, number)},
                                                   {"share", std::pow(number, optimizer_.beta2_decay)},
                                                   {"most", 1 / std::sqrt(number)}};
  Executor& update = executor(TrainingProgram::update);
  std::vector<Tensor> scalars;
  std::vector<TensorView> inputs;
  for (const std::string& name : update.program().input_names) {
    scalars.push_back(Tensor::of<double>(DType::f64, Shape(), {&numbers.at(name), 1}));
    inputs.push_back(scalars.back().view());
  }
  run_floats(update, std::move(inputs));
}

void TrainingRank::clear_gradients() {
  for (const TrainedParameter& parameter : model_.parameters)
    for (const std::string& key : store_keys::gradient_keys(parameter.key))
      if (has(key)) clear(key);
}

int64_t TrainingRank::run_bytes() const { return budget_->used(); }

}  // namespace plait
