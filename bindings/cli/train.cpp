// plait train: trains on a file of texts, and prints progress.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/plan.h"
#include "bindings/cli/train_progress.h"

namespace plait::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

const char* const ending_names[] = {"none", "steps", "patience", "cancelled"};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The results of a run, by step.
struct Record {
  Json losses = Json::array(), seconds = Json::array(), tokens = Json::array(), norms = Json::array(),
       evaluations = Json::array();
  int64_t all_tokens = 0;
  double load_s = 0;
  plait_step last{};  ///< of a step

  void take(const plait_step& step) {
    last = step;
    all_tokens += step.tokens;
    losses.push_back(number(step.loss));
    norms.push_back(number(step.gradient_norm));
    tokens.push_back(step.tokens);
    seconds.push_back(number(static_cast<double>(step.tokens) / step.tokens_per_second));
    if (std::isfinite(step.evaluation_loss))
      evaluations.push_back(
          {{"step", step.step}, {"loss", step.evaluation_loss}, {"perplexity", std::exp(step.evaluation_loss)}});
  }

  static Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
};

/// The directory of the newest checkpoint; "" if there is none.
std::string newest_checkpoint(const std::string& out) {
  std::string newest;
  for (const std::string& name : names_in(out + "/checkpoints"))
    // Numbers have at least six digits; a draft's name continues after them.
    if (name.starts_with("step-") && name.find('.') == std::string::npos &&
        std::pair(name.size(), name) > std::pair(newest.size(), newest))
      newest = name;
  return newest.empty() ? newest : out + "/checkpoints/" + newest;
}

Json where(const std::string& out, bool adapters) {
  Json files = {{"out", out}, {"log", out + "/log.jsonl"}, {"picture", out + "/loss.svg"}};
  if (const std::string newest = newest_checkpoint(out); !newest.empty()) files["checkpoint"] = newest;
  if (fs::exists(out + "/checkpoints/best")) files["best"] = out + "/checkpoints/best";
  if (adapters) files["adapter"] = out + "/adapter";
  return files;
}

Json answer_of(const Record& record, const plait_step& end, double train_s, const Json& files) {
  return {{"ending", ending_names[end.ending]},
          {"steps", end.step},
          {"epochs", end.epochs},
          {"losses", record.losses},
          {"gradient_norms", record.norms},
          {"evaluations", record.evaluations},
          {"best_loss", Record::number(end.best_loss)},
          {"tokens", record.tokens},
          {"timings",
           {{"load_s", record.load_s},
            {"train_s", train_s},
            {"step_s", record.seconds},
            {"tokens_per_s", train_s > 0 ? static_cast<double>(record.all_tokens) / train_s : 0.0}}},
          {"native_bytes", record.last.native_bytes},
          {"peak_memory_bytes", peak_memory_bytes()},
          {"files", files}};
}

/// Prints the next commands on stderr. A prefix cannot be in an ONNX file. Adapters need the weights that they were
/// trained with: those of the checkpoint `begun`, if any.
void print_end(const TrainArguments& arguments, const plait_step& end, const Json& files, bool has_prefix,
               const std::string& begun) {
  const std::string checkpoint = files.value("best", files.value("checkpoint", ""));
  const bool apart = files.contains("adapter") && !begun.empty();
  const std::string model = apart ? "BASE" : arguments.model;
  if (end.ending == PLAIT_ENDING_CANCELLED)
    std::fprintf(stderr, "interrupted after step %lld; the same command with --resume continues\n",
                 static_cast<long long>(end.step));
  if (apart)
    std::fprintf(stderr, "it needs its initial weights: plait export %s --checkpoint %s --out %s\n",
                 arguments.model.c_str(), begun.c_str(), model.c_str());
  if (files.contains("adapter"))
    std::fprintf(stderr, "the adapter is in %s: plait generate %s --adapter %s\n",
                 files["adapter"].get<std::string>().c_str(), model.c_str(),
                 files["adapter"].get<std::string>().c_str());
  if (!checkpoint.empty() && !has_prefix)
    std::fprintf(stderr, "as ONNX: plait export %s --checkpoint %s --out DIR\n", model.c_str(), checkpoint.c_str());
}

/// Pulls reports until the run's last one.
plait_step follow(const plait_api::Trainer& trainer, Record& record, TrainProgress& progress) {
  bool cancelled = false;
  plait_step step{};
  while (true) {
    const bool came = trainer.next(step, patience_ms);
    if (interrupted() && !cancelled) {
      trainer.cancel();
      cancelled = true;
    }
    if (!came) continue;
    if (step.ending != PLAIT_ENDING_NONE) return step;
    record.take(step);
    progress.show(step);
  }
}

}  // namespace

void answer_training_plan(const std::string& plan, const std::string& model, const std::string& html, bool json) {
  const Json report = Json::parse(plan);
  if (!html.empty()) write_file(html, training_plan_page(report, model));
  answer(json ? plan + "\n" : training_plan_text(report));
}

/// Prints the plan of the run; nothing is loaded or written, so other processes are not needed.
static int print_plan(const TrainArguments& arguments, OptionSets options) {
  options.model.set("tokenizer", "none");
  plait_api::Model model(arguments.model, options.model);
  const std::string plan = model.plan_training(options.rest);
  answer_training_plan(plan, arguments.model, arguments.html, arguments.json);
  return exit_ok;
}

int train(const TrainArguments& arguments) {
  OptionSets options = option_sets(arguments, "trainer");
  if (arguments.plan) {
    for (const auto& [key, value] : arguments.trainer) set_option(options.rest, key, value);
    return print_plan(arguments, std::move(options));
  }
  plait_api::World world = open_world(arguments, options);
  if (is_worker(world)) return world.serve(), exit_ok;
  set_option(options.rest, "out", arguments.out);
  bool adapters = false, has_prefix = false;
  std::string begun;
  for (const auto& [key, value] : arguments.trainer) {
    set_option(options.rest, key, value);
    if (key == "prefix") has_prefix = value != "0";
    if (key == "checkpoint") begun = value;
    if (key == "lora" || key == "prefix" || key == "adapter") adapters = adapters || value != "0";
  }
  catch_interrupt();
  options.model.set("background", "true");
  const auto start = Clock::now();
  plait_api::Model model(arguments.model, options.model);
  auto trainer = make_on<plait_api::Trainer>(world, model, options.rest);
  if (!load(trainer)) return exit_interrupted;
  Record record;
  record.load_s = seconds_since(start);
  print_log(model);
  const auto begin = Clock::now();
  plait_step end{};
  {
    TrainProgress progress;
    end = follow(trainer, record, progress);
  }
  const double train_s = seconds_since(begin);
  print_log(model);
  if (adapters) trainer.save_adapter(arguments.out + "/adapter");
  const Json files = where(arguments.out, adapters);
  if (arguments.json) answer(answer_of(record, end, train_s, files).dump() + "\n");
  print_end(arguments, end, files, has_prefix, begun);
  return end.ending == PLAIT_ENDING_CANCELLED ? exit_interrupted : exit_ok;
}

}  // namespace plait::cli
