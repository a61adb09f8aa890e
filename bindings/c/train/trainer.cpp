// Trainers of the C API.
#include <cmath>

#include "bindings/c/model_export.h"
#include "bindings/c/planning.h"
#include "bindings/c/train/trainer_object.h"
#include "bindings/c/train/trainer_options.h"
#include "bindings/c/training.h"

namespace plait::c_api {

TrainerPlan::TrainerPlan(ModelObject& model, const Settings& settings, int threads)
    : options(trainer_options(settings, model.opened().config.context)),
      compile(generator_compile_options(model, settings)) {
  if (const int64_t given = settings.integer("threads"); given > 0) threads = static_cast<int>(given);
  check_pipeline(settings, options.training.pipeline, compile.mesh);
  pool = std::make_shared<ThreadPool>(threads);
  if (const std::string adapter = settings.text("adapter"); !adapter.empty())
    options.training.begin_with(read_adapter(adapter));
  const Graph& of_file = model.opened().imported.graph;
  if (const std::string checkpoint = settings.text("checkpoint"); !checkpoint.empty()) {
    const FoundCheckpoint found = find_checkpoint(of_file, checkpoint);
    if (found.training.has_adapters() && !options.training.gradients) {
      // If nothing is trained, adapters may stay next to the weights, mergeable or not.
      options.training.lora = found.training.lora;
      options.training.prefix = found.training.prefix;
      adapters = found.path;
    } else {
      begun_with = tensors_of_checkpoint(of_file, compile, found.path, pool.get());
    }
  }
  graph = with_tensors(of_file, begun_with);
}

std::function<void(World&)> trainer_rank(ModelObject& model, const Settings& settings, int threads) {
  const auto plan = std::make_shared<const TrainerPlan>(model, settings, threads);
  return [plan](World& world) {
    serve_training(world, plan->graph, plan->compile, plan->options.training, *plan->pool);
  };
}

TrainerObject::TrainerObject(std::shared_ptr<ModelObject> model, Settings settings,
                             std::shared_ptr<WorldObject> world)
    : world_(std::move(world)),
      model_(std::move(model)),
      settings_(std::move(settings)),
      loading_([this](LoadProgress& progress) { return load(progress); }) {
  loading_.start();
}

std::shared_ptr<TrainingRun> TrainerObject::load(LoadProgress& progress) {
  await_model(*model_, progress);
  const Settings settings = with_chosen_plan(*model_, settings_, world_.get(), WorldObject::Kind::trainer, progress);
  TrainerPlan plan(*model_, settings, world_ ? world_->processors() : usable_processors());
  pool_ = plan.pool;
  begun_with_ = std::move(plan.begun_with);
  plan.compile.progress = &progress;
  plan.options = with_directory(std::move(plan.options));  // before reading data, which may take long
  std::optional<Dataset> data, evaluation;
  const std::string path = settings_.text("data"), evaluation_path = settings_.text("eval_data");
  if (!path.empty()) data = read_data(path, &progress);
  if (!evaluation_path.empty()) evaluation = read_data(evaluation_path, &progress);
  // Before other ranks begin.
  TrainerOptions checked = checked_pipeline(checked_options(std::move(plan.options), data), plan.compile.mesh, data);
  if (checked.rate.steps && checked.rate.warmup >= checked.rate.steps)
    model_->log().write(LogLevel::warning,
                        cat("option warmup is ", checked.rate.warmup, ", and the run has ", checked.rate.steps,
                            " steps: the learning rate never reaches its maximum"));
  options_ = checked;
  options_.lock.reset();  // now only the trainer has it
  std::shared_ptr<World> world = world_ ? world_->lend(WorldObject::Kind::trainer, *model_, settings) : nullptr;
  auto trainer = std::make_unique<Trainer>(std::move(plan.graph), plan.compile, std::move(checked), std::move(data),
                                           std::move(evaluation), *pool_, &progress, world.get());
  if (const std::string adapter = settings_.text("adapter"); !adapter.empty() && trainer->steps_done() == 0)
    load_adapter(trainer->engine(), adapter);
  if (options_.resume && !options_.directory.empty()) {
    const int64_t done = trainer->steps_done();
    model_->log().write(LogLevel::info, done ? cat("resume: the run continues at step ", done + 1, ", after its checkpoint of step ", done)
                                             : cat("resume: the run begins at step 1: ", quote(options_.directory, 4096),
                                                   " has no checkpoint"));
  }
  if (!plan.adapters.empty()) trainer->engine().load(plan.adapters);
  progress.check();
  return std::make_shared<TrainingRun>(
      std::move(trainer), std::make_shared<std::pair<decltype(pool_), decltype(world)>>(pool_, std::move(world)));
}

Dataset TrainerObject::read_data(const std::string& path, LoadProgress* progress) const {
  constexpr double share = 0.5;  // share of reading a file in the loading
  const ModelConfig& config = model_->opened().config;
  TokenizerPointer tokenizer = model_->has_tokenizer() ? model_->tokenizer() : nullptr;
  // The tokenizer defines the end of a text; further end tokens of the model end turns.
  std::optional<int32_t> eos = tokenizer ? tokenizer->eos_id() : std::nullopt;
  if (!eos && !config.eos_tokens.empty()) eos = config.eos_tokens[0];
  DatasetOptions options{.tokenizer = tokenizer.get(),
                         .eos = eos,
                         .seq = sample_tokens(settings_, config.context),
                         .cut_long = settings_.boolean("cut_long"),
                         .pool = pool_.get(),
                         .progress = progress,
                         .progress_until = share};
  Dataset out = Dataset::read(path, options);
  for (const std::string& note : out.notes()) model_->log().write(LogLevel::warning, note);
  return out;
}

bool TrainerObject::wait(int64_t timeout_ms) const {
  if (!loading_.wait(timeout_ms)) return false;
  loading_.get();
  return true;
}

void TrainerObject::cancel() {
  loading_.cancel();
  if (!loading_.wait(0)) return;
  try {
    loading_.get()->cancel();
  } catch (...) {  // it was not loaded, which its other calls report
  }
}

namespace {

plait_step step_of(const RunEvent& event) {
  const StepReport& report = event.report;
  plait_step out{};
  out.ending = static_cast<plait_ending>(event.ending);
  out.saved = report.saved;
  out.step = report.step;
  out.steps = event.steps;
  out.epochs = event.epochs;
  out.loss = report.loss;
  out.learning_rate = report.learning_rate;
  out.gradient_norm = report.gradient_norm;
  out.tokens = report.tokens;
  out.tokens_per_second = report.tokens_per_second;
  out.seconds_left = event.seconds_left;
  out.evaluation_loss = report.evaluation_loss;
  out.best_loss = event.best_loss;
  out.native_bytes = std::isfinite(report.memory_bytes) ? static_cast<int64_t>(report.memory_bytes) : 0;
  out.bubble = report.bubble;
  return out;
}

static_assert(static_cast<int>(Trainer::Ending::steps) == PLAIT_ENDING_STEPS &&
              static_cast<int>(Trainer::Ending::patience) == PLAIT_ENDING_PATIENCE &&
              static_cast<int>(Trainer::Ending::cancelled) == PLAIT_ENDING_CANCELLED);

plait_evaluation evaluation_of(const Trainer::Evaluation& evaluation) {
  plait_evaluation out{};
  out.loss = evaluation.loss;
  out.perplexity = std::exp(evaluation.loss);
  out.targets = evaluation.targets;
  return out;
}

void check_host_driven(const Trainer& trainer) {
  if (trainer.has_data())
    throw Error(Code::invalid_argument, "the trainer goes through its data by itself",
                "make one without the option data");
}

/// Tensors of the host, checked before waiting.
struct Documents {
  std::shared_ptr<Tensor> ids, labels;
  Documents(plait_tensor* of_ids, plait_tensor* of_labels)
      : ids(object_of<Tensor>(of_ids)), labels(optional_object_of<Tensor>(of_labels)) {}

  PackedStep rows(const Trainer& trainer) const {
    std::optional<TensorView> view;
    if (labels) view = labels->view();
    return trainer.pack(ids->view(), view ? &*view : nullptr);
  }
};

/// The same for a graph's own inputs.
struct Inputs {
  std::vector<std::shared_ptr<Tensor>> tensors;
  NamedInputs views;
  Inputs(const char* const* names, plait_tensor* const* given, int64_t count) {
    const auto all = span_of(given, count, "inputs");
    for (size_t i = 0; const char* name : span_of(names, count, "input_names")) {
      tensors.push_back(object_of<Tensor>(all[i++]));
      if (!views.emplace(required(name, "name"), tensors.back()->view()).second)
        throw Error(Code::invalid_argument, cat("input ", quote(name), " is passed twice"));
    }
  }
};

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_trainer_create(plait_model* model, plait_options* options, plait_trainer** out) {
  return create(out, [&] {
    return std::make_shared<TrainerObject>(object_of<ModelObject>(model), settings_of(options, for_trainer));
  });
}

plait_status plait_trainer_create_on(plait_world* world, plait_model* model, plait_options* options,
                                     plait_trainer** out) {
  return create(out, [&] {
    return std::make_shared<TrainerObject>(object_of<ModelObject>(model), settings_of(options, for_trainer),
                                           object_of<WorldObject>(world));
  });
}

plait_status plait_trainer_wait(plait_trainer* trainer, int64_t timeout_ms) {
  return guarded([&] {
    auto object = object_of<TrainerObject>(trainer);
    if (!object->wait(timeout_ms)) throw Error(Code::timeout, "the trainer is still loading");
  });
}

plait_status plait_trainer_progress(plait_trainer* trainer, double* fraction) {
  return guarded([&] {
    *required(fraction, "fraction") = 0;
    *fraction = object_of<TrainerObject>(trainer)->progress();
  });
}

plait_status plait_trainer_cancel(plait_trainer* trainer) {
  return guarded([&] { object_of<TrainerObject>(trainer)->cancel(); });
}

plait_status plait_trainer_next(plait_trainer* trainer, int64_t timeout_ms, plait_step* out) {
  return guarded([&] {
    fill(out, plait_step{});
    auto object = object_of<TrainerObject>(trainer);
    const auto event = object->run().next(timeout_of(timeout_ms));
    if (!event) throw Error(Code::timeout, "no step was done in time");
    fill(out, step_of(*event));
  });
}

plait_status plait_trainer_step(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels, plait_step* out) {
  return guarded([&] {
    fill(out, plait_step{});
    auto object = object_of<TrainerObject>(trainer);
    const Documents given(ids, labels);
    TrainingRun& run = object->run();
    run.with([&](Trainer& own) {
      check_host_driven(own);
      fill(out, step_of(run.event_of(own.step(given.rows(own)))));
    });
  });
}

plait_status plait_trainer_step_inputs(plait_trainer* trainer, const char* const* input_names,
                                       plait_tensor* const* inputs, int64_t input_count, plait_step* out) {
  return guarded([&] {
    fill(out, plait_step{});
    auto object = object_of<TrainerObject>(trainer);
    const Inputs given(input_names, inputs, input_count);
    TrainingRun& run = object->run();
    run.with([&](Trainer& own) { fill(out, step_of(run.event_of(own.step(given.views)))); });
  });
}

plait_status plait_trainer_forward(plait_trainer* trainer, plait_tensor* ids, plait_tensor** logits) {
  return create(logits, [&] {
    auto object = object_of<TrainerObject>(trainer);
    const Documents given(ids, nullptr);
    Tensor rows;
    object->run().with([&](Trainer& own) {
      check_host_driven(own);
      rows = own.forward(given.rows(own));
    });
    const Shape& shape = given.ids->shape();
    return share(Tensor(DType::f32, {shape[0], shape[1], rows.shape()[1]}, rows.blob()));
  });
}

plait_status plait_trainer_backward(plait_trainer* trainer, plait_tensor* ids, plait_tensor* gradient) {
  return guarded([&] {
    auto object = object_of<TrainerObject>(trainer);
    const Documents given(ids, nullptr);
    const auto of_logits = object_of<Tensor>(gradient);
    object->run().with([&](Trainer& own) {
      check_host_driven(own);
      own.backward(given.rows(own), of_logits->view());
    });
  });
}

plait_status plait_trainer_update(plait_trainer* trainer, plait_step* out) {
  return guarded([&] {
    fill(out, plait_step{});
    auto object = object_of<TrainerObject>(trainer);
    TrainingRun& run = object->run();
    run.with([&](Trainer& own) {
      check_host_driven(own);
      fill(out, step_of(run.event_of(own.update())));
    });
  });
}

plait_status plait_trainer_evaluate(plait_trainer* trainer, const char* data, plait_evaluation* out) {
  return guarded([&] {
    fill(out, plait_evaluation{});
    auto object = object_of<TrainerObject>(trainer);
    const std::string path = required(data, "data");
    object->run().with([&](Trainer& own) { fill(out, evaluation_of(own.evaluate(object->read_data(path)))); });
  });
}

plait_status plait_trainer_evaluate_ids(plait_trainer* trainer, plait_tensor* ids, plait_tensor* labels,
                                        plait_evaluation* out) {
  return guarded([&] {
    fill(out, plait_evaluation{});
    auto object = object_of<TrainerObject>(trainer);
    const Documents given(ids, labels);
    object->run().with([&](Trainer& own) { fill(out, evaluation_of(own.evaluate(given.rows(own)))); });
  });
}

plait_status plait_trainer_evaluate_inputs(plait_trainer* trainer, const char* const* input_names,
                                           plait_tensor* const* inputs, int64_t input_count, plait_evaluation* out) {
  return guarded([&] {
    fill(out, plait_evaluation{});
    auto object = object_of<TrainerObject>(trainer);
    const Inputs given(input_names, inputs, input_count);
    object->run().with([&](Trainer& own) { fill(out, evaluation_of(own.evaluate(given.views))); });
  });
}

plait_status plait_trainer_save(plait_trainer* trainer) {
  return guarded([&] { object_of<TrainerObject>(trainer)->run().with([](Trainer& own) { own.save(); }); });
}

plait_status plait_trainer_export(plait_trainer* trainer, const char* directory) {
  return guarded([&] {
    auto object = object_of<TrainerObject>(trainer);
    const std::string path = required(directory, "directory");
    object->run().with([&](Trainer& own) {
      FileTensors tensors = trained_tensors(own.engine(), &object->pool());
      tensors.insert(object->begun_with().begin(), object->begun_with().end());  // if not trained further
      const ModelObject::Work work(object->model());
      write_model(object->model(), {tensors}, path, &work.progress());
    });
  });
}

plait_status plait_trainer_save_adapter(plait_trainer* trainer, const char* directory) {
  return guarded([&] {
    auto object = object_of<TrainerObject>(trainer);
    const std::string path = required(directory, "directory");
    object->run().with([&](Trainer& own) { save_adapter(own.engine(), path, object->model().file()); });
  });
}

plait_status plait_trainer_release(plait_trainer* trainer) { return release<TrainerObject>(trainer); }
