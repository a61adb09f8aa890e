#include "core/train/run_state.h"

#include <set>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/pipeline.h"

namespace plait {
namespace {

constexpr const char* own_loss = "loss";

/// Options that must not change for a run to resume.
std::map<std::string, std::string> lasting(const TrainerOptions& options) {
  const OptimizerOptions& optimizer = options.training.optimizer;
  const LoraOptions& lora = options.training.lora;
  const LearningRate& rate = options.rate;
  std::map<std::string, std::string> out{
      {"batch", cat(options.batch)},
      {"clip", cat(options.clip)},
      {"seed", cat(options.seed)},
      {"tokens of a row", cat(options.training.row_tokens)},
      {"learning rate", cat(rate.peak)},
      {"warm-up", cat(rate.warmup)},
      {"schedule", cat(rate_schedule_name(rate.schedule))},
      {"weight decay", cat(optimizer.weight_decay)},
      {"LoRA rank", cat(lora.rank)},
      {"prefix", options.training.prefix.tokens ? cat(options.training.prefix.tokens) : ""},
  };
  if (rate.schedule != RateSchedule::constant) out["rate's floor"] = cat(rate.floor);
  if (is_asynchronous(options.training.pipeline))
    out["asynchronous schedule"] = cat(options.training.pipeline.schedule, " ", options.training.pipeline.micro_batches, " ",
                                       options.flush_every, " ", options.evaluate_every, " ", options.save_every);
  if (!options.training.loss.empty()) out[own_loss] = options.training.loss;
  if (lora.rank) {
    out["LoRA alpha"] = cat(lora.alpha);
    out["LoRA dropout"] = cat(lora.dropout);
    out["LoRA targets"] = join(lora.targets, ",");
    out["LoRA modules"] = join(lora.modules, ",");
  } else {
    out["trained weights"] = join(options.training.trained, ",");
  }
  if (optimizer.kind == OptimizerKind::adamw)
    out["optimizer"] = cat("adamw ", optimizer.beta1, " ", optimizer.beta2, " ", optimizer.epsilon);
  if (optimizer.kind == OptimizerKind::sgd) out["optimizer"] = cat("sgd ", optimizer.momentum);
  if (optimizer.kind == OptimizerKind::adafactor) out["optimizer"] = cat("adafactor ", optimizer.beta2_decay);
  return out;
}

constexpr std::string_view option_mark = "option: ";
constexpr const char* trained_tensors_state = "trained tensors";  ///< their names, one a line

}  // namespace

std::map<std::string, std::string> run_state(const TrainerOptions& options, const std::vector<std::string>& trained) {
  std::map<std::string, std::string> out{{trained_tensors_state, join(trained, "\n")}};
  for (const auto& [name, value] : lasting(options)) out[cat(option_mark, name)] = value;
  return out;
}

void check_run_state(const std::map<std::string, std::string>& state, const TrainerOptions& options) {
  const std::map<std::string, std::string> now = lasting(options);
  auto check = [&](const std::string& name) {
    auto found = state.find(cat(option_mark, name));
    const std::string before = found == state.end() ? "" : found->second;
    if (before != now.at(name))
      throw Error(Code::invalid_argument,
                  cat("the run in ", quote(options.directory, 4096), " has another ", name, ": ", quote(before),
                      ", not ", quote(now.at(name))),
                  "resume with the options of the run, or begin a new one in another directory");
  };
  // What is trained, and how, decides which other options exist.
  for (const char* first : {"LoRA rank", "prefix", "optimizer", "schedule"}) check(first);
  for (const auto& [name, value] : now) check(name);
}

std::string state_of(const CheckpointInfo& info, const std::string& name) {
  auto found = info.state.find(name);
  if (found == info.state.end())
    throw Error(Code::bad_model, cat("the checkpoint of step ", info.step, " lacks ", quote(name)));
  return found->second;
}

std::string fingerprint(const Graph& graph, const std::vector<std::string>& trained) {
  constexpr int64_t most = 4096;  // bytes of each that are hashed: name, type and first values identify a model
  const std::set<std::string> changes(trained.begin(), trained.end());
  uint32_t sum = 0;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const auto& constant = graph.value(id).constant;
    if (!constant || constant->initializer.empty()) continue;
    const Tensor& tensor = constant->source;
    const std::string type = cat(constant->initializer, dtype_name(tensor.dtype()), tensor.shape().text());
    sum = crc32c(std::as_bytes(std::span(type)), sum);
    if (!changes.contains(constant->initializer))
      sum = crc32c({tensor.data(), static_cast<size_t>(std::min(tensor.bytes(), most))}, sum);
  }
  return cat("weights ", static_cast<uint64_t>(sum));
}

std::string fingerprint(const Graph& graph, const CheckpointInfo& info) {
  const std::string tensors = state_of(info, trained_tensors_state);
  return fingerprint(graph, tensors.empty() ? std::vector<std::string>{} : split(tensors, '\n'));
}

TrainingOptions trained_by(const CheckpointInfo& info) {
  auto option = [&](const char* name) { return state_of(info, cat(option_mark, name)); };
  auto list = [&](const char* name) {
    const std::string text = option(name);
    return text.empty() ? std::vector<std::string>{} : split(text, ',');
  };
  TrainingOptions out;
  if (const auto found = info.state.find(cat(option_mark, own_loss)); found != info.state.end())
    out.loss = found->second;
  LoraOptions& lora = out.lora;
  if (!parse_int(option("LoRA rank"), lora.rank))
    throw Error(Code::bad_model, cat("the checkpoint of step ", info.step, " has no LoRA rank"));
  if (auto prefix = info.state.find(cat(option_mark, "prefix"));
      prefix != info.state.end() && !prefix->second.empty())
    if (!parse_int(prefix->second, out.prefix.tokens))
      throw Error(Code::bad_model, cat("the checkpoint of step ", info.step, " has no such prefix"));
  if (!lora.rank) {
    out.trained = list("trained weights");
    return out;
  }
  if (!parse_double(option("LoRA alpha"), lora.alpha))
    throw Error(Code::bad_model, cat("the checkpoint of step ", info.step, " has no LoRA alpha"));
  lora.targets = list("LoRA targets");
  lora.modules = list("LoRA modules");
  return out;
}

}  // namespace plait
