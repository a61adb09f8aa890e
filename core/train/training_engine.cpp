#include "core/train/training_engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

template <class T>
Tensor row_of(DType dtype, const std::vector<T>& values) {
  return Tensor::of<T>(dtype, {1, static_cast<int64_t>(values.size())}, values);
}

}  // namespace

TrainingEngine::TrainingEngine(Graph graph, const CompileOptions& options, const TrainingOptions& training,
                               ThreadPool& pool, LoadProgress* progress)
    : training_(training), pool_(pool), model_(compile_training(std::move(graph), options, training)) {
  accumulate_ = make(model_.accumulate, progress);
  evaluate_ = make(model_.evaluate, progress);
  norm_ = make(model_.norm, progress);
  update_ = make(model_.update, progress);
}

/// Null for null.
std::unique_ptr<Executor> TrainingEngine::make(const std::shared_ptr<const Program>& program,
                                               LoadProgress* progress) {
  if (!program) return nullptr;
  store_.load(*program, std::vector<int64_t>(static_cast<size_t>(program->symbols.size())), &pool_, progress);
  return std::make_unique<Executor>(program, store_, pool_);
}

/// `more` are the inputs beside those that say what the row is; `rows` are the tokens that it asks for.
void TrainingEngine::run(Executor& executor, const PackedRow& row, const std::vector<int32_t>& rows,
                         std::map<std::string_view, TensorView> more) {
  if (row.tokens() > training_.row_tokens)
    throw Error(Code::invalid_argument,
                cat("a row has ", row.tokens(), " tokens, at most ", training_.row_tokens, " were planned for"));
  // The ids are the input whose name is the file's.
  const Tensor tokens = row_of<int64_t>(DType::i64, {row.ids.begin(), row.ids.end()});
  const Tensor positions = row_of(DType::i32, row.positions), segments = row_of(DType::i32, row.segments),
               asked = row_of(DType::i32, rows);
  more.insert({{"positions", positions.view()}, {"segments", segments.view()}, {"rows", asked.view()}});
  std::vector<TensorView> inputs;
  for (const std::string& name : executor.program().input_names) {
    auto found = more.find(name);
    inputs.push_back(found == more.end() ? tokens.view() : found->second);
  }
  executor.run(inputs);
}

double TrainingEngine::run(Executor& executor, const PackedRow& row, double weight) {
  std::vector<int32_t> rows, labels;
  for (size_t i = 0; i < row.labels.size(); ++i)
    if (row.labels[i] >= 0) {
      rows.push_back(static_cast<int32_t>(i));
      labels.push_back(row.labels[i]);
    }
  if (rows.empty()) return 0;
  const std::vector<float> weights(rows.size(), static_cast<float>(weight));
  const Tensor wanted = row_of(DType::i32, labels), counts = row_of(DType::f32, weights);
  run(executor, row, rows, {{"labels", wanted.view()}, {"weights", counts.view()}});
  return *executor.output(0).as<float>();
}

double TrainingEngine::accumulate(const PackedRow& row, double weight) { return run(*accumulate_, row, weight); }

double TrainingEngine::evaluate(const PackedRow& row, std::vector<float>* losses) {
  const double sum = run(*evaluate_, row, 1);
  if (losses) {
    const TensorView view = evaluate_->output(1);
    losses->assign(view.as<float>(), view.as<float>() + view.elements());
  }
  return sum;
}

namespace {

std::vector<int32_t> all_tokens(const PackedRow& row) {
  std::vector<int32_t> out(row.ids.size());
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace

Tensor TrainingEngine::logits(const PackedRow& row) {
  if (!forward_) forward_ = make(model_.forward);
  run(*forward_, row, all_tokens(row), {});
  const TensorView view = forward_->output(0);
  Tensor out(DType::f32, {row.tokens(), view.shape[2]});
  std::memcpy(out.data(), view.data, static_cast<size_t>(out.bytes()));
  return out;
}

void TrainingEngine::accumulate(const PackedRow& row, const TensorView& given) {
  if (!backward_) backward_ = make(model_.backward);
  TensorView gradients = given;
  gradients.shape = {1, given.shape[0], given.shape[1]};
  run(*backward_, row, all_tokens(row), {{"gradients", gradients}});
}

double TrainingEngine::gradient_norm() {
  norm_->run({});
  return *norm_->output(0).as<float>();
}

void TrainingEngine::update(double scale, double rate) {
  ++steps_;
  const OptimizerOptions& optimizer = training_.optimizer;
  const auto step = static_cast<double>(steps_);
  const float numbers[] = {static_cast<float>(scale), static_cast<float>(rate),
                           static_cast<float>(1 - std::pow(optimizer.beta1, step)),
                           static_cast<float>(1 - std::pow(optimizer.beta2, step))};
  std::vector<Tensor> scalars;
  std::vector<TensorView> inputs;
  for (size_t i = 0; i < update_->program().inputs.size(); ++i) {
    scalars.push_back(Tensor::of<float>(DType::f32, Shape(), {numbers + i, 1}));
    inputs.push_back(scalars.back().view());
  }
  update_->run(inputs);
}

void TrainingEngine::clear_gradients() {
  for (const TrainedParameter& parameter : parameters()) {
    const Tensor gradient = array(parameter.key + ".gradient");
    std::memset(gradient.data(), 0, static_cast<size_t>(gradient.bytes()));
  }
}

std::vector<std::string> TrainingEngine::moments() const {
  if (training_.optimizer.kind == OptimizerKind::adamw) return {".first", ".second"};
  return {".first"};
}

int64_t TrainingEngine::run_bytes() const {
  int64_t sum = 0;
  for (const auto* executor : {&accumulate_, &evaluate_, &norm_, &update_, &forward_, &backward_})
    if (*executor) sum += (*executor)->bytes();
  return sum;
}

}  // namespace plait
