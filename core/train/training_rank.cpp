#include "core/train/training_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"

namespace plait {
namespace {

double number_of(const TensorView& view) {
  const Tensor wide = copy_as(view, DType::f64);
  return *wide.as<double>();
}

/// In the precision of the sum, as the programs compute.
double root_of(const TensorView& squares) {
  const double sum = number_of(squares);
  return squares.dtype == DType::f32 ? static_cast<double>(std::sqrt(static_cast<float>(sum))) : std::sqrt(sum);
}

bool is_of_host_loss(TrainingProgram name) {
  return name == TrainingProgram::forward || name == TrainingProgram::backward;
}

}  // namespace

TrainingRank::TrainingRank(TrainingModel model, const CompileOptions& options, const TrainingOptions& training,
                           ThreadPool& pool, std::shared_ptr<Store> weights, LoadProgress* progress)
    : optimizer_(training.optimizer),
      prefix_(training.prefix.tokens),
      model_(std::move(model)),
      pool_(pool),
      store_(std::move(weights), options.own_device()) {
  if (model_.stages.count() > 1 && !Pipeline(training.pipeline, options.mesh).is_consistent()) check_untied();
  int64_t arena_bytes = 0;
  const auto load = [&](TrainingProgram name, const Program& program) {
    if (is_of_host_loss(name)) return;
    arena_bytes = std::max(arena_bytes, program.arena_bytes);
    load_store(program, progress);
  };
  for (const auto& [name, program] : model_.programs) load(name, *program);
  for (const auto& [name, sections] : model_.sections)
    for (const StageSection& section : sections) load(name, *section.program);
  arena_ = budget_->take(arena_bytes, store_.device());
  if (model_.stages.count() > 1)
    pipeline_ = std::make_unique<PipelineRank>(training.pipeline, model_, options.rank, store_, budget_);
}

/// With schedules whose stages read different versions of weights, holders of one weight would update it by gradients of
/// different versions.
void TrainingRank::check_untied() const {
  for (const auto& [key, holders] : model_.holders)
    if (holders.size() > 1)
      throw Error(Code::unsupported,
                  cat("the weight ", quote(key), " is read by stages on ", holders.size(),
                      " pipeline ranks, which this schedule updates at different times"),
                  "choose 2bw or a synchronous schedule, or put the layers that read it on one stage");
}

void TrainingRank::load_store(const Program& program, LoadProgress* progress) {
  store_.load(program, std::vector<int64_t>(static_cast<size_t>(program.symbols.size())), &pool_, progress);
}

void TrainingRank::join(World* world) {
  if (world) groups_ = ProgramGroups(world->rank(), split_world(*world, store_.device()));
  if (pipeline_) pipeline_->join(world, groups_);
  for (const auto& [name, program] : model_.programs)
    if (!is_of_host_loss(name)) make(name);
}

void TrainingRank::make(TrainingProgram name) {
  executors_[name] = make(model_.programs.at(name));
}

std::unique_ptr<Executor> TrainingRank::make(std::shared_ptr<const Program> program) {
  return std::make_unique<Executor>(program, store_, pool_, budget_, groups_.of(*program), arena_);
}

/// Collective over the world.
Executor& TrainingRank::executor(TrainingProgram name) {
  if (!has_executor(name)) {
    load_store(model_.program(name), nullptr);
    make(name);
  }
  return *executors_.at(name);
}

double TrainingRank::run(Executor& executor, const RankBatch& batch) {
  executor.run(BatchInputs(batch, prefix_).of(executor.program()));
  return number_of(executor.output(0));
}

/// In stages.
PipelineRank::Results TrainingRank::run_stages(TrainingProgram program, std::span<const RankBatch> batches) {
  std::vector<BatchInputs> inputs;
  for (const RankBatch& batch : batches) inputs.emplace_back(batch, prefix_);
  return pipeline_->run(program, inputs, section_maker());
}

StageSections::MakeExecutor TrainingRank::section_maker() {
  return [this](std::shared_ptr<const Program> section) {
    load_store(*section, nullptr);
    return make(std::move(section));
  };
}

/// The sum over micro-batches, in their order, of a result that is a number.
double TrainingRank::sum_of(const PipelineRank::Results& results, int32_t number) const {
  std::vector<double> numbers;
  for (const auto& one : results) {
    const auto found = one.find(number);
    numbers.push_back(found == one.end() ? 0 : number_of(found->second.view()));
  }
  pipeline_->sum(numbers);
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

void TrainingRank::check(const RankBatch& batch) {
  if (pipeline_) {
    pipeline_->check(BatchInputs(batch, prefix_), section_maker());
    return;
  }
  Executor& evaluate = executor(TrainingProgram::evaluate);
  evaluate.bind(BatchInputs(batch, prefix_).of(evaluate.program()));
}

double TrainingRank::accumulate(const RankBatch& batch, double& norm) {
  if (batch.gradient.present()) {
    Executor& backward = executor(TrainingProgram::backward);
    backward.run(BatchInputs(batch, prefix_).of(backward.program()));
    return 0;
  }
  if (!batch.last || !has_executor(TrainingProgram::settle)) return run(executor(TrainingProgram::accumulate), batch);
  Executor& settle = executor(TrainingProgram::settle);
  const double loss = run(settle, batch);
  norm = root_of(settle.output(1));
  clear_reduced();
  return loss;
}

double TrainingRank::accumulate(std::span<const RankBatch> batches, double& norm) {
  if (pipeline_) {
    const bool given = batches[0].gradient.present();
    const PipelineRank::Results results =
        run_stages(given ? TrainingProgram::backward : TrainingProgram::accumulate, batches);
    return given ? 0 : sum_of(results, 0);
  }
  double sum = 0;
  for (const RankBatch& batch : batches) sum += accumulate(batch, norm);
  return sum;
}

double TrainingRank::evaluate(std::span<const RankBatch> batches, std::vector<float>* losses) {
  const auto append = [&](const TensorView& made) {
    const Tensor all = copy_as(made, DType::f32);
    losses->insert(losses->end(), all.as<float>(), all.as<float>() + all.elements());
  };
  if (losses) losses->clear();
  if (pipeline_) {
    PipelineRank::Results results = run_stages(TrainingProgram::evaluate, batches);
    for (size_t i = 0; losses && i < results.size(); ++i)
      append(pipeline_->share_result(results[i][1], static_cast<int32_t>(i)).view());
    return sum_of(results, 0);
  }
  double sum = 0;
  Executor& evaluate = executor(TrainingProgram::evaluate);
  for (const RankBatch& batch : batches) {
    sum += run(evaluate, batch);
    if (losses) append(evaluate.output(1));
  }
  return sum;
}

std::string TrainingRank::find_fault(const RankBatch& batch) {
  std::string out;
  if (pipeline_) {
    pipeline_->set_watch(TrainingProgram::accumulate, &out);
    run_stages(TrainingProgram::accumulate, {&batch, 1});
    pipeline_->set_watch(TrainingProgram::accumulate, nullptr);
    return out;
  }
  Executor& accumulate = executor(TrainingProgram::accumulate);
  accumulate.set_watch(&out);
  run(accumulate, batch);
  accumulate.set_watch(nullptr);
  return out;
}

TensorView TrainingRank::logits(const RankBatch& batch) {
  if (pipeline_) {
    PipelineRank::Results results = run_stages(TrainingProgram::forward, {&batch, 1});
    logits_ = std::move(pipeline_->share_result(results[0][0], 0));
  } else {
    Executor& forward = executor(TrainingProgram::forward);
    forward.run(BatchInputs(batch, prefix_).of(forward.program()));
    const TensorView made = forward.output(0);
    if (made.dtype == DType::f32) return made;
    logits_ = copy_as(made, DType::f32);
  }
  if (logits_.dtype() != DType::f32) logits_ = copy_as(logits_.view(), DType::f32);
  return logits_.view();
}

double TrainingRank::gradient_norm() {
  if (!pipeline_) {
    squares({});
    return root_of(executor(TrainingProgram::norm).output(0));
  }
  pipeline_->sum_over_holders();
  double sum = squares({});
  pipeline_->sum({&sum, 1});
  return std::sqrt(sum);
}

/// Of the gradients that this rank counts, after reducing them.
double TrainingRank::squares(const ArraysByKey& arrays) {
  if (!model_.has(TrainingProgram::norm)) return 0;
  Executor& norm = executor(TrainingProgram::norm);
  norm.use(arrays);
  norm.run({});
  clear_reduced(arrays);
  return number_of(norm.output(0));
}

/// Zeros this rank's partial gradients that were reduced.
void TrainingRank::clear_reduced(const ArraysByKey& arrays) {
  for (const TrainedParameter& parameter : model_.parameters) {
    if (!has(store_keys::reduced_gradient(parameter.key))) continue;
    const std::string key = store_keys::gradient(parameter.key);
    const auto found = arrays.find(key);
    clear(found == arrays.end() ? array(key) : found->second);
  }
}

void TrainingRank::clear(const Tensor& array) {
  Device& device = store_.device();
  device.fill(device.queue(Device::Use::compute), const_cast<std::byte*>(array.data()), 0, array.bytes());
}

WindowResult TrainingRank::run_window(const WindowOptions& options, std::span<const std::optional<RankBatch>> batches) {
  std::vector<std::unique_ptr<BatchInputs>> inputs;
  for (const std::optional<RankBatch>& batch : batches)
    inputs.push_back(batch ? std::make_unique<BatchInputs>(*batch, prefix_) : nullptr);
  const auto squares_of = [this](const ArraysByKey& arrays) { return squares(arrays); };
  const auto update_by = [this](double scale, double rate, int64_t step, const ArraysByKey& arrays) {
    update(scale, rate, step, arrays);
  };
  return pipeline_->run_window(options, inputs, section_maker(), {squares_of, update_by});
}

void TrainingRank::update(double scale, double rate, int64_t step) { update(scale, rate, step, {}); }

void TrainingRank::update(double scale, double rate, int64_t step, const ArraysByKey& arrays) {
  const auto number = static_cast<double>(step);
  const std::map<std::string_view, double> numbers{{"scale", scale},
                                                   {"rate", rate},
                                                   {"correction1", 1 - std::pow(optimizer_.beta1, number)},
                                                   {"correction2", 1 - std::pow(optimizer_.beta2, number)},
                                                   {"share", std::pow(number, optimizer_.beta2_decay)},
                                                   {"most", 1 / std::sqrt(number)}};
  if (!model_.has(TrainingProgram::update)) return;  // this rank's stages have nothing that is trained
  Executor& update = executor(TrainingProgram::update);
  update.use(arrays);
  const Program& program = update.program();
  std::vector<Tensor> scalars;
  std::vector<TensorView> inputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Tensor wide = Tensor::of<double>(DType::f64, Shape(), {&numbers.at(program.input_names[i]), 1});
    scalars.push_back(copy_as(wide.view(), program.buffers[static_cast<size_t>(program.inputs[i])].dtype));
    inputs.push_back(scalars.back().view());
  }
  update.run(inputs);
}

void TrainingRank::clear_gradients() {
  for (const TrainedParameter& parameter : model_.parameters)
    for (const std::string& key : store_keys::gradient_keys(parameter.key))
      if (has(key)) clear(array(key));
}

int64_t TrainingRank::run_bytes() const { return budget_->used(); }

}  // namespace plait
