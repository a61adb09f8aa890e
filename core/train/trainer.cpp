#include "core/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/text.h"
#include "core/passes/train/parameters.h"
#include "core/train/log/loss_curve.h"
#include "core/train/run_state.h"
#include "core/train/timeline_file.h"

namespace plait {
namespace {

using Clock = std::chrono::steady_clock;

/// Samples evaluated at once: enough to fill rows.
constexpr int64_t evaluation_batch = 64;

/// Names of the file's tensors that the parameters replace.
std::vector<std::string> tensors_of_file(const std::vector<TrainedParameter>& parameters) {
  std::set<std::string> out;
  auto add = [&](const Constant& constant) {
    for (std::string& name : names_of(constant)) out.insert(std::move(name));
  };
  for (const TrainedParameter& parameter : parameters) {
    add(*parameter.origin);
    for (const auto& copy : parameter.copies) add(*copy);
  }
  return {out.begin(), out.end()};
}

}  // namespace

Trainer::Trainer(Graph graph, const CompileOptions& compile, TrainerOptions options, std::optional<Dataset> data,
                 std::optional<Dataset> evaluation, ThreadPool& pool, LoadProgress* progress, World* world)
    : options_(with_directory(checked_pipeline(checked_options(std::move(options), data), compile.mesh, data))),
      data_(std::move(data)),
      evaluation_(std::move(evaluation)),
      engine_(graph, compile, options_.training, pool, progress, world),
      trained_(tensors_of_file(engine_.parameters())),
      model_(fingerprint(graph, trained_)) {
  if (data_) {
    check_samples(*data_);
    order_.emplace(data_->size(), options_.seed, data_->digest());
  }
  if (evaluation_) check_samples(*evaluation_);
  if (!options_.directory.empty()) open_directory();
}

void Trainer::check_samples(const Dataset& data) const {
  const Decoder& decoder = engine_.model().decoder;
  check_lengths(data, options_.training.row_tokens, "a row");
  const int64_t prefix = options_.training.prefix.tokens;
  if (decoder.context)
    check_lengths(data, decoder.context - prefix, prefix ? "the model after its prefix" : "the model");
  for (int64_t i = 0; i < data.size(); ++i)
    for (int32_t id : data[i].ids)
      if (id < 0 || id >= decoder.vocabulary)
        throw Error(
            Code::invalid_argument,
            cat(data.where(i), ": the token ", id, " is not in the model's vocabulary of ", decoder.vocabulary),
            "the data are of another tokenizer");
}

void Trainer::open_directory() {
  if (const auto there = list_checkpoints(checkpoints_of(options_.directory)); !there.empty()) resume(there.back());
  log_ = std::make_unique<TrainingLog>(options_.directory, engine_.steps());
  engine_.open_checkpoints(checkpoints_of(options_.directory), options_.keep);
}

void Trainer::resume(const std::string& path) try {
  const Checkpoint checkpoint = Checkpoint::open(path);
  const CheckpointInfo& info = checkpoint.info();
  check_run_state(info.state, options_);
  checkpoint.check_model(model_);
  if (steps() && info.step > steps())
    throw Error(Code::invalid_argument, cat("the run has done ", info.step, " steps, and is to have ", steps()),
                "raise the number of steps (option steps)");
  if (order_) order_->resume(state_of(info, "order"));
  if (!parse_double(state_of(info, "best"), best_)) best_ = std::numeric_limits<double>::infinity();
  if (!parse_int(state_of(info, "since best"), since_best_)) since_best_ = 0;
  engine_.load(path);
  engine_.set_steps(info.step);
  saved_step_ = info.step;
} catch (const Error& error) {
  if (error.code() != Code::bad_model) throw;
  throw Error(error.code(), error.message(),
              cat("without the directory ", quote(path, 4096), " the run continues from the previous checkpoint"));
}

void Trainer::run() {
  while (step()) {
  }
}

std::optional<StepReport> Trainer::step() {
  check_training(data_.has_value(), "there are no data to take a step of");
  if (engine_.is_asynchronous()) {
    if (window_.empty() && !end_if_due()) take_window();
    if (window_.empty()) return std::nullopt;
    const StepReport report = window_.front();
    window_.pop_front();
    if (window_.empty()) end_if_due();
    return report;
  }
  if (end_if_due()) return std::nullopt;
  const std::string place = order_->state();
  std::vector<TrainingSample> samples;
  for (int64_t number : order_->next(options_.batch)) samples.push_back((*data_)[number]);
  StepReport report;
  try {
    report = take(
        as_batches(pack_step(samples, options_.training.row_tokens, engine_.data_ranks(), engine_.micro_batches())));
  } catch (const Error& error) {
    order_->resume(place);
    if (error.code() != Code::cancelled) throw;
    end(Ending::cancelled);
    return std::nullopt;
  }
  follow(report);
  end_if_due();  // so that a host with its own loop needs no extra step
  return report;
}

StepReport Trainer::step(const PackedStep& given) {
  check_rows();
  return given_step(as_batches(given));
}

StepReport Trainer::step(const NamedInputs& given) {
  check_own_loss();
  return given_step(as_batches(given));
}

StepReport Trainer::given_step(const GivenStep& given) {
  check_training(options_.training.gradients, "this trainer only evaluates");
  StepReport report;
  try {
    report = take(given);
  } catch (const Error& error) {
    if (error.code() == Code::cancelled && ending_ == Ending::none) end(Ending::cancelled);
    throw;
  }
  follow(report);
  return report;
}

void Trainer::check_rows() const {
  check_training(options_.training.loss.empty(), "the loss is the graph's own, which takes its own inputs by name");
}
void Trainer::check_own_loss() const {
  check_training(!options_.training.loss.empty(),
                 "inputs by name are those of a graph with a loss of its own (option loss)");
}

Trainer::GivenStep Trainer::as_batches(const PackedStep& step) {
  GivenStep out{{}, step.tokens, step.targets > 0};
  const double weight = step.targets ? 1 / static_cast<double>(step.targets) : 0;
  for (const std::vector<PackedRow>& rows : step.rows) out.batches.push_back({.rows = rows, .weight = weight});
  if (!out.batches.empty()) out.batches.back().last = true;
  return out;
}

/// Its tokens are the largest first dim, the batch. One micro-batch, or in stages as many as were asked for, of equal parts of
/// the batch: a loss that is a mean over it is the mean of theirs.
Trainer::GivenStep Trainer::as_batches(const NamedInputs& inputs) const {
  GivenStep out;
  for (const auto& [name, view] : inputs)
    if (view.shape.rank() > 0) out.tokens = std::max(out.tokens, view.shape[0]);
  const int64_t count = engine_.in_stages() ? std::max<int64_t>(options_.training.pipeline.micro_batches, 1) : 1;
  for (int64_t k = 0; k < count; ++k) {
    MicroBatch& batch =
        out.batches.emplace_back(MicroBatch{.inputs = inputs, .weight = 1 / static_cast<double>(count)});
    for (auto& [name, view] : batch.inputs) {
      if (count == 1 || !engine_.model().spread_inputs.contains(name)) continue;
      if (view.shape.rank() == 0 || view.shape[0] % count)
        throw Error(Code::invalid_argument,
                    cat("the input ", quote(name), " is ", view.shape.text(), ", whose first size ", count,
                        " micro-batches do not divide"),
                    "give a batch that is a multiple of micro_batches times the mesh's data ranks");
      view.shape[0] /= count;
      view.data += k * view.bytes();
    }
  }
  out.batches.back().last = true;
  return out;
}

/// Changes the weights, or nothing if it throws.
StepReport Trainer::take(const GivenStep& given) {
  const auto begin = Clock::now();
  try {
    const double loss = accumulate(given);
    StepReport report = apply(given.tokens, begin);
    report.loss = loss;
    return report;
  } catch (const Error& error) {
    engine_.clear_gradients();
    if (error.code() != Code::numeric) throw;
    const std::string fault = fault_in(given);
    engine_.clear_gradients();
    throw Error(error.code(),
                cat(error.message(), fault.empty() ? "; a weight holds a number that is not finite"
                                                   : cat("; the first number that is not finite is made by ", fault)),
                error.hint());
  }
}

/// Names the source of the first number that is not finite.
std::string Trainer::fault_in(const GivenStep& step) {
  std::string fault;
  for (size_t i = 0; fault.empty() && i < step.batches.size(); ++i) fault = engine_.find_fault(step.batches[i]);
  return fault;
}

/// The optimizer step, and the report of what began at `begin`.
StepReport Trainer::apply(int64_t tokens, Clock::time_point begin) {
  StepReport report;
  try {
    report.gradient_norm = checked(engine_.gradient_norm(), "norm of the gradients");
  } catch (...) {
    engine_.clear_gradients();
    throw;
  }
  report.learning_rate = options_.rate.at(engine_.steps());
  const bool clipped = options_.clip > 0 && report.gradient_norm > options_.clip;
  engine_.update(clipped ? options_.clip / report.gradient_norm : 1, report.learning_rate);
  report.step = engine_.steps();
  report.tokens = tokens;
  report.tokens_per_second =
      static_cast<double>(tokens) / std::chrono::duration<double>(Clock::now() - begin).count();
  report.memory_bytes = static_cast<double>(engine_.store_bytes() + engine_.run_bytes());
  report.bubble = draw_timeline();
  return report;
}

/// Returns the bubble of the last step or window, and draws it where the options want that. NaN without stages.
double Trainer::draw_timeline() const {
  const Timeline* timeline = engine_.timeline();
  if (!timeline) return StepReport::unknown;
  if (!options_.timeline.empty()) write_timeline(options_.timeline, *timeline, engine_.steps());
  return timeline->bubble();
}

/// Called between steps of the host: ends the run with a checkpoint if it was cancelled.
void Trainer::check_cancelled() {
  if (!cancelled_) return;
  engine_.clear_gradients();
  given_tokens_ = 0;
  if (ending_ == Ending::none) end(Ending::cancelled);
  throw Error(Code::cancelled, "training was cancelled");
}

void Trainer::check_host_loss() const {
  check_rows();
  check_training(options_.training.host_loss, "the logits are not a result of this trainer's programs");
}

Tensor Trainer::forward(const PackedStep& given) {
  check_host_loss();
  Tensor out(DType::f32, {given.tokens, engine_.model().decoder.vocabulary});
  std::byte* to = out.data();
  for (const auto& rows : given.rows) {
    check_cancelled();
    const Tensor part = engine_.logits(rows);
    to = std::copy_n(part.data(), part.bytes(), to);
  }
  return out;
}

void Trainer::backward(const PackedStep& given, const TensorView& gradient) {
  check_host_loss();
  check_training(options_.training.gradients, "this trainer only evaluates");
  const Shape expected{given.tokens, engine_.model().decoder.vocabulary};
  if (gradient.dtype != DType::f32 || gradient.elements() != expected.elements())
    throw Error(Code::invalid_argument, cat("the gradient is ", dtype_name(gradient.dtype), gradient.shape.text(),
                                            ", the logits are f32", expected.text()));
  if (given_tokens_ == 0) given_begin_ = Clock::now();
  TensorView part{gradient.data, DType::f32, expected};
  for (const auto& rows : given.rows) {
    check_cancelled();
    part.shape[0] = 0;
    for (const PackedRow& row : rows) part.shape[0] += row.tokens();
    engine_.accumulate({.rows = rows, .gradient = part});
    part.data += part.bytes();
  }
  given_tokens_ += given.tokens;
}

StepReport Trainer::update() {
  check_training(given_tokens_ > 0, "there are no gradients to update along");
  check_cancelled();
  StepReport report = apply(std::exchange(given_tokens_, 0), given_begin_);
  follow(report);
  return report;
}

/// What is due after a step.
void Trainer::follow(StepReport& report) {
  const bool best = evaluate_due(report);
  report.saved = log_ != nullptr && (best || (options_.save_every && report.step % options_.save_every == 0));
  if (log_) log_->write(report);
  if (report.saved) save_checkpoint(best, Saving::copied);
}

bool Trainer::end_if_due() {
  if (ending_ != Ending::none) return true;
  if (engine_.steps() >= steps()) end(Ending::steps);
  else if (options_.patience && since_best_ >= options_.patience) end(Ending::patience);
  else if (cancelled_) end(Ending::cancelled);
  return ending_ != Ending::none;
}

/// The step's mean loss.
double Trainer::accumulate(const GivenStep& step) {
  const auto accumulate = [&](std::span<const MicroBatch> batches) {
    if (cancelled_) throw Error(Code::cancelled, "training was cancelled");
    return engine_.accumulate(batches);
  };
  double loss = 0;
  if (engine_.in_stages()) loss = checked(accumulate(step.batches), "loss");
  for (size_t i = 0; !engine_.in_stages() && i < step.batches.size(); ++i)
    loss = checked(loss + accumulate({&step.batches[i], 1}), "loss");
  return step.has_targets ? loss : StepReport::unknown;
}

double Trainer::checked(double number, const char* what) const {
  if (!std::isfinite(number))
    throw Error(Code::numeric,
                cat("step ", engine_.steps() + 1, ": the ", what, " is ", std::isnan(number) ? "NaN" : "infinite"),
                "the weights are as before the step, and checkpoints stay; try a lower learning rate, more steps of "
                "warm-up, or look at the data of this step");
  return number;
}

/// Whether the current weights are the best so far.
bool Trainer::evaluate_due(StepReport& report) {
  const bool due = report.step == steps() || (options_.evaluate_every && report.step % options_.evaluate_every == 0);
  if (!evaluation_ || !due) return false;
  try {
    report.evaluation_loss = evaluate(*evaluation_).loss;
  } catch (const Error& error) {
    if (error.code() != Code::cancelled) throw;
    return false;  // the next step ends the run
  }
  const bool best = report.evaluation_loss < best_;
  since_best_ = best ? 0 : since_best_ + 1;
  if (best) best_ = report.evaluation_loss;
  return best;
}

Trainer::Evaluation Trainer::evaluate(const Dataset& data) {
  check_samples(data);
  Evaluation out;
  double sum = 0;
  for (int64_t first = 0; first < data.size(); first += evaluation_batch) {
    std::vector<TrainingSample> samples;
    for (int64_t i = first; i < std::min(first + evaluation_batch, data.size()); ++i) samples.push_back(data[i]);
    const Evaluation some =
        evaluate(pack_step(samples, options_.training.row_tokens, engine_.data_ranks(), engine_.micro_batches()));
    sum += some.loss * static_cast<double>(some.targets);
    out.targets += some.targets;
  }
  out.loss = sum / static_cast<double>(out.targets);
  return out;
}

Trainer::Evaluation Trainer::evaluate(const NamedInputs& given) {
  check_own_loss();
  return {engine_.evaluate({.inputs = given}), 1};
}

Trainer::Evaluation Trainer::evaluate(const PackedStep& given) {
  check_rows();
  check_training(given.targets > 0, "there is nothing to evaluate: no label counts");
  Evaluation out{0, given.targets};
  if (engine_.in_stages()) {
    if (cancelled_) throw Error(Code::cancelled, "training was cancelled");
    std::vector<MicroBatch> batches;
    for (const auto& rows : given.rows) batches.push_back({.rows = rows});
    out.loss = engine_.evaluate(batches) / static_cast<double>(given.targets);
    return out;
  }
  for (const auto& rows : given.rows) {
    if (cancelled_) throw Error(Code::cancelled, "training was cancelled");
    out.loss += engine_.evaluate({.rows = rows}) / static_cast<double>(given.targets);
  }
  return out;
}

void Trainer::save() {
  check_training(log_ != nullptr, "there is no directory to save into");
  if (!options_.lock) options_.lock = std::make_shared<const RunLock>(options_.directory);
  save_checkpoint(false, Saving::in_place);
  engine_.wait_for_checkpoints();
}

void Trainer::save_checkpoint(bool best, Saving how) {
  CheckpointInfo info{engine_.steps(), model_, {}};
  info.state = {{"order", order_ ? order_->state() : ""}, {"best", cat(best_)}, {"since best", cat(since_best_)}};
  info.state.merge(run_state(options_, trained_));
  engine_.save(info, best, how);
  saved_step_ = info.step;
}

void Trainer::end(Ending ending) {
  if (log_) {
    if (saved_step_ != engine_.steps()) save_checkpoint(false, Saving::in_place);
    engine_.wait_for_checkpoints();
  }
  if (log_) {
    FileWriter picture(path("loss.svg"), FileWriter::At::whole);
    picture.write(loss_curve_svg(log_->reports()));
    picture.finish();
  }
  options_.lock.reset();
  ending_ = ending;
}

}  // namespace plait
