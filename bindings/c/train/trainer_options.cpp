#include "bindings/c/train/trainer_options.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/schedule/schedules.h"
#include "core/train/pipeline.h"

namespace plait::c_api {
namespace {

/// Rejects options that have no effect in combination with the others.
void check_company(const Settings& settings) {
  const std::string optimizer = settings.text("optimizer");
  const bool lora = settings.integer("lora") > 0, prefix = settings.integer("prefix") > 0;
  const bool adapters = !settings.text("adapter").empty(), evaluates = !settings.text("eval_data").empty();
  auto check = [&](bool means, std::initializer_list<const char*> keys, const char* why) {
    for (const char* key : keys)
      if (!means && settings.has(key))
        throw Error(Code::invalid_argument, cat("option ", key, " has no effect here: ", why), "leave it out");
  };
  check(lora || adapters, {"lora_alpha", "lora_dropout", "lora_targets"}, "no adapters are trained (lora)");
  check(!lora && !prefix && !adapters, {"train"}, "adapters are trained, not weights");
  check(evaluates, {"evaluate_every", "patience"}, "there is nothing to evaluate (eval_data)");
  check(optimizer == "adamw", {"beta1", "beta2", "epsilon"}, "the optimizer is not adamw");
  check(optimizer == "sgd", {"momentum"}, "the optimizer is not sgd");
  check(optimizer == "adafactor", {"beta2_decay"}, "the optimizer is not adafactor");
}

OptimizerOptions optimizer_options(const Settings& settings) {
  OptimizerOptions out;
  const std::string name = settings.text("optimizer");
  out.kind = name == "sgd"         ? OptimizerKind::sgd
             : name == "adafactor" ? OptimizerKind::adafactor
                                   : OptimizerKind::adamw;
  out.beta1 = settings.real("beta1");
  out.beta2 = settings.real("beta2");
  out.epsilon = settings.real("epsilon");
  out.beta2_decay = settings.real("beta2_decay");
  out.momentum = settings.real("momentum");
  out.weight_decay = settings.real("weight_decay");
  return out;
}

uint64_t seed_given(const Settings& settings) {
  return settings.has("seed") ? static_cast<uint64_t>(settings.integer("seed")) : 0;
}

LoraOptions lora_options(const Settings& settings) {
  return {.rank = settings.integer("lora"),
          .alpha = settings.real("lora_alpha"),
          .dropout = settings.real("lora_dropout"),
          .targets = settings.texts("lora_targets"),
          .seed = seed_given(settings)};
}

int64_t row_tokens(const Settings& settings, int64_t seq) {
  // Memory grows with it. 512 suffice for products at full speed, and keep activations in the caches; when weights are
  // trained, each micro-batch also passes over all gradients, which more tokens amortise.
  const bool adapts = settings.integer("lora") > 0 || settings.integer("prefix") > 0;
  const int64_t most = adapts ? 512 : 2048;
  if (const int64_t given = settings.integer("micro_batch"); given > 0) {
    if (given < seq)
      throw Error(Code::invalid_argument, cat("micro_batch is ", given, ", a sample may have ", seq, " tokens"),
                  "give at least seq");
    return given;
  }
  return std::max(seq, std::min(settings.integer("batch") * seq, most));
}

Recompute recompute_of(const Settings& settings) {
  const std::string given = settings.text("recompute");
  if (given == "auto") return settings.text("dtype") == "bf16" ? Recompute::rounded : Recompute::off;
  if (given == "selective") return Recompute::selective;
  if (given == "rounded") return Recompute::rounded;
  return given == "full" ? Recompute::full : Recompute::off;
}

/// The name of a schedule, or a file's lists, which are then read.
std::string schedule_of(const std::string& given) {
  const std::string_view name = trimmed(std::string_view(given).substr(0, given.find(':')));
  const auto known = schedule_rows();
  if (std::any_of(known.begin(), known.end(), [&](const ScheduleRow& row) { return row.name == name; })) return given;
  if (!exists(given)) {
    schedule_terms(given, 1);  // throws, with the names
    return given;
  }
  std::string lists = read_text_file(given) + "\n";
  try {
    check_schedule(parse_schedule(lists));
  } catch (const Error& error) {
    throw error.at(cat("the schedule file ", quote(given, 4096)));
  }
  return lists;
}

std::string timeline_file(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty() && !is_directory(folder))
    throw Error(Code::io, cat("timeline is ", quote(path, 4096), ": there is no directory ", quote(folder, 4096)),
                "create it, or give another file");
  return path;
}

LearningRate learning_rate(const Settings& settings) {
  LearningRate out;
  out.peak = settings.real("lr");
  out.schedule = rate_schedule_from_name(settings.text("schedule"));
  const bool endless = settings.text("data").empty() && settings.integer("steps") == 0;
  if (endless && !settings.has("schedule")) out.schedule = RateSchedule::constant;
  out.warmup = settings.integer("warmup");
  out.floor = settings.real("lr_floor");
  return out;
}

}  // namespace

int64_t sample_tokens(const Settings& settings, int64_t context) {
  constexpr int64_t usual = 1024;
  const int64_t seq = settings.integer("seq"), prefix = settings.integer("prefix");
  if (context > 0 && std::max<int64_t>(seq, 1) + prefix > context)
    throw Error(Code::invalid_argument,
                cat("seq is ", seq, prefix ? cat(" after a prefix of ", prefix) : "", ", the model's context has ",
                    context, " tokens"),
                "give at most that");
  if (context > 0) context -= prefix;
  if (seq > 0) return seq;
  return context > 0 ? std::min(context, usual) : usual;
}

TrainerOptions trainer_options(const Settings& settings, int64_t context) {
  check_company(settings);
  TrainerOptions out;
  out.training.optimizer = optimizer_options(settings);
  out.training.lora = lora_options(settings);
  out.training.prefix = {.tokens = settings.integer("prefix"), .seed = seed_given(settings)};
  out.training.trained = settings.texts("train");
  out.training.loss = settings.text("loss");
  out.training.bucket_bytes = settings.integer("bundle_bytes");
  out.training.overlap_bytes = settings.integer("overlap_bytes");
  out.training.zero = static_cast<int>(settings.integer("zero"));
  out.training.recompute = recompute_of(settings);
  out.training.pipeline = pipeline_options(settings);
  out.flush_every = settings.integer("flush_every");
  out.timeline = timeline_file(settings.text("timeline"));
  out.training.host_loss = settings.text("data").empty();
  out.training.gradients = !settings.boolean("frozen");
  out.training.row_tokens = row_tokens(settings, sample_tokens(settings, context));
  out.rate = learning_rate(settings);
  out.steps = settings.integer("steps");
  out.epochs = settings.real("epochs");
  out.batch = settings.integer("batch");
  out.clip = settings.real("clip");
  out.seed = seed_given(settings);
  out.evaluate_every = settings.integer("evaluate_every");
  out.patience = settings.integer("patience");
  out.save_every = settings.integer("save_every");
  out.keep = settings.integer("keep_checkpoints");
  out.directory = settings.text("out");
  out.resume = settings.boolean("resume");
  return out;
}

PipelineOptions pipeline_options(const Settings& settings) {
  return {.schedule = schedule_of(settings.text("pipeline")),
          .stages = settings.text("stages"),
          .seats = settings.text("seats"),
          .micro_batches = settings.integer("micro_batches")};
}

void check_pipeline(const Settings& settings, const PipelineOptions& options, const Mesh& mesh) {
  const auto without_effect = [&](std::initializer_list<const char*> keys, const std::string& why, const char* hint) {
    for (const char* key : keys)
      if (settings.has(key)) throw Error(Code::invalid_argument, cat("option ", key, " has no effect here: ", why), hint);
  };
  const Pipeline pipeline(options, mesh);
  if (!pipeline.is_asynchronous())
    without_effect({"flush_every"}, "the schedule is synchronous", "leave it out");
  if (!pipeline.in_stages())
    without_effect({"pipeline", "stages", "seats", "micro_batches", "timeline"},
                   cat("the mesh ", quote(mesh.text()), " has no pipeline ranks, and the schedule one stage"),
                   "leave it out, or give a mesh such as pipeline=2");
  if (options.lists())
    without_effect({"seats", "micro_batches"}, "the schedule file has seats and micro-batches of its own", "leave it out");
}

StageOptions trainer_stages(const Settings& settings, const Mesh& mesh) {
  const PipelineOptions options = pipeline_options(settings);
  check_pipeline(settings, options, mesh);
  return mesh.ranks() == 1 ? StageOptions() : Pipeline(options, mesh).stages();
}

}  // namespace plait::c_api
