#include "core/train/training_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace plait {
namespace {

template <class T>
Tensor row_of(DType dtype, const std::vector<T>& values) {
  return Tensor::of<T>(dtype, {1, static_cast<int64_t>(values.size())}, values);
}

/// How long the document of each token is with its prefix; 1 for padding.
std::vector<int32_t> lengths_of(const PackedRow& row, int64_t prefix) {
  std::map<int32_t, int32_t> lengths;
  for (int32_t segment : row.segments) ++lengths[segment];
  std::vector<int32_t> out;
  for (int32_t segment : row.segments)
    out.push_back(segment < 0 ? 1 : lengths[segment] + static_cast<int32_t>(prefix));
  return out;
}

/// Where each token stands in its document, which begins behind the prefix.
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

/// Floats are given in the dtype that the program computes in.
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

}  // namespace

TrainingRank::TrainingRank(Graph graph, const CompileOptions& options, const TrainingOptions& training,
                           ThreadPool& pool, std::shared_ptr<Store> weights, LoadProgress* progress)
    : optimizer_(training.optimizer),
      prefix_(training.prefix.tokens),
      model_(compile_training(std::move(graph), options, training)),
      pool_(pool),
      store_(std::move(weights)) {
  int64_t arena_bytes = 0;
  for (const Program* program : {model_.accumulate.get(), model_.settle.get(), model_.evaluate.get(),
                                 model_.norm.get(), model_.update.get()}) {
    if (!program) continue;
    arena_bytes = std::max(arena_bytes, program->arena_bytes);
    store_.load(*program, std::vector<int64_t>(static_cast<size_t>(program->symbols.size())), &pool, progress);
  }
  arena_ = room_->take(arena_bytes, store_.device());
}

/// All ranks of the world do it at once: their groups are split off it.
std::unique_ptr<Executor> TrainingRank::make(const std::shared_ptr<const Program>& program) {
  if (!program) return nullptr;
  std::vector<Communicator*> groups;
  for (const std::vector<int32_t>& group : program->groups) {
    std::unique_ptr<Communicator>& split = splits_[group];
    if (!split) {  // ranks of a group have its lowest number in common
      const int color = *std::min_element(group.begin(), group.end());
      const auto key = std::find(group.begin(), group.end(), world_->rank()) - group.begin();
      split = world_->communicator().split(color, static_cast<int>(key));
    }
    groups.push_back(split.get());
  }
  return std::make_unique<Executor>(program, store_, pool_, room_, std::move(groups), arena_);
}

void TrainingRank::join(World* world) {
  world_ = world;
  accumulate_ = make(model_.accumulate);
  settle_ = make(model_.settle);
  evaluate_ = make(model_.evaluate);
  norm_ = make(model_.norm);
  update_ = make(model_.update);
}

/// `more` are the inputs beside those that say what the row is.
void TrainingRank::run(Executor& executor, const TrainingRow& given, std::map<std::string_view, TensorView> more) {
  const PackedRow& row = given.row;
  // The ids are the input whose name is the file's.
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

double TrainingRank::run(Executor& executor, const TrainingRow& row) {
  const Tensor labels = row_of(DType::i32, row.labels), weights = row_of(DType::f32, row.weights);
  run(executor, row, {{"labels", labels.view()}, {"weights", weights.view()}});
  return number_of(executor.output(0));
}

std::vector<float> TrainingRank::losses() const {
  const Tensor all = copy_as(evaluate_->output(1), DType::f32);
  return {all.as<float>(), all.as<float>() + all.elements()};
}

Executor& TrainingRank::later(std::unique_ptr<Executor>& executor, const std::shared_ptr<const Program>& program) {
  if (!executor) {
    store_.load(*program, std::vector<int64_t>(static_cast<size_t>(program->symbols.size())), &pool_, nullptr);
    executor = make(program);
  }
  return *executor;
}

TensorView TrainingRank::logits(const TrainingRow& row) {
  run(later(forward_, model_.forward), row, {});
  const TensorView made = forward_->output(0);
  if (made.dtype == DType::f32) return made;
  logits_ = copy_as(made, DType::f32);
  return logits_.view();
}

void TrainingRank::accumulate(const TrainingRow& row, const TensorView& given) {
  run(later(backward_, model_.backward), row, {{"gradients", given}});
}

std::vector<TensorView> TrainingRank::in_order(const Executor& executor, const NamedInputs& given) {
  std::vector<TensorView> out;
  for (const std::string& name : executor.program().input_names) out.push_back(given.find(name)->second);
  return out;
}

double TrainingRank::run(Executor& executor, const NamedInputs& given) {
  executor.run(in_order(executor, given));
  return *executor.output(0).as<float>();
}

template <class Inputs>
std::string TrainingRank::fault_of(const Inputs& inputs) {
  std::string out;
  accumulate_->set_watch(&out);
  run(*accumulate_, inputs);
  accumulate_->set_watch(nullptr);
  return out;
}

std::string TrainingRank::find_fault(const TrainingRow& row) { return fault_of(row); }
std::string TrainingRank::find_fault(const NamedInputs& inputs) { return fault_of(inputs); }

template <class Inputs>
double TrainingRank::accumulate_and_settle(const Inputs& inputs, double& norm) {
  if (!settle_) return accumulate(inputs);
  const double loss = run(*settle_, inputs);
  norm = number_of(settle_->output(1));
  clear_settled();
  return loss;
}

double TrainingRank::accumulate_last(const TrainingRow& row, double& norm) {
  return accumulate_and_settle(row, norm);
}
double TrainingRank::accumulate_last(const NamedInputs& inputs, double& norm) {
  return accumulate_and_settle(inputs, norm);
}

double TrainingRank::gradient_norm() {
  norm_->run({});
  clear_settled();
  return number_of(norm_->output(0));
}

/// Summands that went into the sums of all ranks.
void TrainingRank::clear_settled() {
  for (const TrainedParameter& parameter : model_.parameters)
    if (has(parameter.key + ".reduced")) {
      const Tensor sum = array(parameter.key + ".gradient");
      std::memset(sum.data(), 0, static_cast<size_t>(sum.bytes()));
    }
}

void TrainingRank::update(double scale, double rate, int64_t step) {
  const auto number = static_cast<double>(step);
  const std::map<std::string_view, double> numbers{{"scale", scale},
                                                   {"rate", rate},
                                                   {"correction1", 1 - std::pow(optimizer_.beta1, number)},
                                                   {"correction2", 1 - std::pow(optimizer_.beta2, number)},
                                                   {"share", std::pow(number, optimizer_.beta2_decay)},
                                                   {"most", 1 / std::sqrt(number)}};
  std::vector<Tensor> scalars;
  std::vector<TensorView> inputs;
  for (const std::string& name : update_->program().input_names) {
    scalars.push_back(Tensor::of<double>(DType::f64, Shape(), {&numbers.at(name), 1}));
    inputs.push_back(scalars.back().view());
  }
  run_floats(*update_, std::move(inputs));
}

void TrainingRank::clear_gradients() {
  for (const TrainedParameter& parameter : model_.parameters)
    for (const char* what : {".gradient", ".reduced"})
      if (has(parameter.key + what)) {
        const Tensor sum = array(parameter.key + what);
        std::memset(sum.data(), 0, static_cast<size_t>(sum.bytes()));
      }
}

int64_t TrainingRank::run_bytes() const { return room_->used(); }

}  // namespace plait
