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

/// How long the document of each token is; 1 for padding.
std::vector<int32_t> lengths_of(const PackedRow& row) {
  std::map<int32_t, int32_t> lengths;
  for (int32_t segment : row.segments) ++lengths[segment];
  std::vector<int32_t> out;
  for (int32_t segment : row.segments) out.push_back(segment < 0 ? 1 : lengths[segment]);
  return out;
}

}  // namespace

TrainingRank::TrainingRank(Graph graph, const CompileOptions& options, const TrainingOptions& training,
                           ThreadPool& pool, std::shared_ptr<Store> weights, LoadProgress* progress)
    : optimizer_(training.optimizer),
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
  arena_ = room_->take(arena_bytes);
}

void TrainingRank::join(World* world) {
  auto make = [&](const std::shared_ptr<const Program>& program) -> std::unique_ptr<Executor> {
    if (!program) return nullptr;
    std::vector<Communicator*> groups;
    for (const std::vector<int32_t>& group : program->groups) {
      std::unique_ptr<Communicator>& split = splits_[group];
      if (!split) {  // ranks of a group have its lowest number in common
        const int color = *std::min_element(group.begin(), group.end());
        const auto key = std::find(group.begin(), group.end(), world->rank()) - group.begin();
        split = world->communicator().split(color, static_cast<int>(key));
      }
      groups.push_back(split.get());
    }
    return std::make_unique<Executor>(program, store_, pool_, room_, std::move(groups), arena_);
  };
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
  const Tensor positions = row_of(DType::i32, row.positions), segments = row_of(DType::i32, row.segments),
               lengths = row_of(DType::i32, lengths_of(row)), rows = row_of(DType::i32, given.rows),
               keys = row_of(DType::i64, given.keys);
  more.insert({{"positions", positions.view()},
               {"segments", segments.view()},
               {"lengths", lengths.view()},
               {"rows", rows.view()},
               {"keys", keys.view()}});
  std::vector<TensorView> inputs;
  for (const std::string& name : executor.program().input_names) {
    auto found = more.find(name);
    inputs.push_back(found == more.end() ? tokens.view() : found->second);
  }
  executor.run(inputs);
}

double TrainingRank::run(Executor& executor, const TrainingRow& row) {
  const Tensor labels = row_of(DType::i32, row.labels), weights = row_of(DType::f32, row.weights);
  run(executor, row, {{"labels", labels.view()}, {"weights", weights.view()}});
  return *executor.output(0).as<float>();
}

/// One rank has no groups.
Executor& TrainingRank::later(std::unique_ptr<Executor>& executor, const std::shared_ptr<const Program>& program) {
  if (!executor) {
    store_.load(*program, std::vector<int64_t>(static_cast<size_t>(program->symbols.size())), &pool_, nullptr);
    executor = std::make_unique<Executor>(program, store_, pool_, room_, std::vector<Communicator*>(), arena_);
  }
  return *executor;
}

TensorView TrainingRank::logits(const TrainingRow& row) {
  run(later(forward_, model_.forward), row, {});
  return forward_->output(0);
}

void TrainingRank::accumulate(const TrainingRow& row, const TensorView& given) {
  run(later(backward_, model_.backward), row, {{"gradients", given}});
}

std::string TrainingRank::find_fault(const TrainingRow& row) {
  std::string out;
  accumulate_->set_watch(&out);
  run(*accumulate_, row);
  accumulate_->set_watch(nullptr);
  return out;
}

double TrainingRank::accumulate_last(const TrainingRow& row, double& norm) {
  if (!settle_) return accumulate(row);
  const double loss = run(*settle_, row);
  norm = *settle_->output(1).as<float>();
  clear_settled();
  return loss;
}

double TrainingRank::gradient_norm() {
  norm_->run({});
  clear_settled();
  return *norm_->output(0).as<float>();
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
    const auto value = static_cast<float>(numbers.at(name));
    scalars.push_back(Tensor::of<float>(DType::f32, Shape(), {&value, 1}));
    inputs.push_back(scalars.back().view());
  }
  update_->run(inputs);
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
