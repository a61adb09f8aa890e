// Plans of training runs by simulation: of a decoder by its sizes, on a machine by its speeds.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"
#include "core/base/text.h"
#include "core/plan/generate/generation_plans.h"
#include "core/plan/search/plan_search.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view recomputes[] = {"off", "selective", "rounded", "full"};
constexpr std::string_view optimizers[] = {"adamw", "sgd", "adafactor"};

template <class Enum, size_t count>
Enum of_name(const std::string_view (&names)[count], const std::string& name) {
  return static_cast<Enum>(std::find(std::begin(names), std::end(names), name) - std::begin(names));
}

std::string given(const std::string& value, const char* key) {
  if (value.empty())
    throw Error(Code::invalid_argument, cat("option ", key, " is missing"),
                "a plan needs decoder, machine, ranks and batch");
  return value;
}

/// What the machine multiplies fastest, unless a type is given.
DType work_of(const Settings& settings, const Machine& machine) {
  if (settings.has("dtype")) return settings.text("dtype") == "bf16" ? DType::bf16 : DType::none;
  for (const DType dtype : {DType::bf16, DType::f16})
    if (machine.device.peak.contains(dtype)) return dtype;
  return DType::none;
}

PlanLimits limits_of(const Settings& settings) {
  PlanLimits out;
  out.ranks = settings.integer("ranks");
  if (settings.has("mesh") && !settings.text("mesh").empty()) {
    const Mesh mesh = Mesh::parse(settings.text("mesh"));
    out.pipeline = mesh.blocks(mesh.parts("pipeline"));
    out.data = mesh.blocks(mesh.parts("data"));
    out.tensor = mesh.blocks(mesh.parts("tensor"));
    if (settings.has("ranks") && out.ranks != mesh.ranks())
      throw Error(Code::invalid_argument,
                  cat("option mesh has ", mesh.ranks(), " ranks, and option ranks is ", out.ranks));
    out.ranks = mesh.ranks();
  }
  if (settings.has("memory_bytes")) out.memory_bytes = static_cast<double>(settings.integer("memory_bytes"));
  if (settings.has("pipeline")) out.schedule = settings.text("pipeline");
  if (settings.has("micro_batch") && settings.integer("micro_batch"))
    out.micro_batch = settings.integer("micro_batch");
  if (settings.has("zero")) out.zero = static_cast<int>(settings.integer("zero"));
  if (settings.has("recompute") && settings.text("recompute") != "auto")
    out.recompute = of_name<Recompute>(recomputes, settings.text("recompute"));
  if (settings.has("stages") && settings.text("stages") != "auto")
    for (const std::string& part : split(settings.text("stages"), ',')) {
      int64_t& layers = out.layers.emplace_back();
      if (!parse_int(part, layers) || layers < 0)
        throw Error(Code::invalid_argument, cat("option stages is ", quote(settings.text("stages")),
                                                ", expected layers of each stage, as in 9,9"));
    }
  return out;
}

/// The options that the plan is run with.
Json options_json(const Plan& plan, const PlanTask& task) {
  Json out = Json::object();
  if (plan.ranks() > 1) out["mesh"] = plan.mesh();
  if (plan.pipeline > 1) {
    std::vector<std::string> layers;
    for (const int64_t one : plan.layers) layers.push_back(cat(one));
    out["pipeline"] = plan.schedule;
    out["stages"] = join(layers, ",");
  }
  out["batch"] = task.batch;
  out["seq"] = task.shape.sequence;
  out["micro_batch"] = plan.micro_batch;
  if (plan.data > 1) out["zero"] = plan.zero;
  out["recompute"] = recomputes[static_cast<size_t>(plan.recompute)];
  return out;
}

Json memory_json(const StepPrice& price) {
  Json out = Json::array();
  for (size_t i = 0; i < price.memory.size(); ++i) {
    const PlannedBytes& one = price.memory[i];
    const auto bytes = [](double value) { return static_cast<int64_t>(value); };
    out.push_back({{"pipeline", i},
                   {"weights", bytes(one.weights)},
                   {"gradients", bytes(one.gradients)},
                   {"optimizer", bytes(one.optimizer)},
                   {"section", bytes(one.arena)},
                   {"slots", bytes(one.slots)},
                   {"messages", bytes(one.messages)},
                   {"total", bytes(one.total())}});
  }
  return out;
}

Json price_json(const StepPrice& price, const PlanTask& task) {
  return {{"options", options_json(price.plan, task)},
          {"step_seconds", price.step_s},
          {"tokens_per_second", price.tokens_per_second},
          {"mfu", price.mfu},
          {"bubble", price.bubble},
          {"micro_batches", price.micro_batches},
          {"exposed",
           {{"collectives", price.collectives_s}, {"messages", price.messages_s}, {"reduction", price.reduce_s}}},
          {"update_seconds", price.update_s},
          {"most_bytes", static_cast<int64_t>(price.most_bytes())}};
}

Json result_json(const SearchResult& found, const PlanTask& task) {
  Json out = price_json(found.best, task);
  out["memory"] = memory_json(found.best);
  out["neighbours"] = Json::array();
  for (const Neighbour& one : found.neighbours) {
    Json row = {{"changed", one.changed}, {"lost", one.lost}, {"bytes", static_cast<int64_t>(one.bytes)}};
    row["step_seconds"] = one.step_s > 0 ? Json(one.step_s) : Json(nullptr);
    row["options"] = options_json(one.plan, task);
    out["neighbours"].push_back(std::move(row));
  }
  out["others"] = Json::array();
  for (const StepPrice& one : found.others) out["others"].push_back(price_json(one, task));
  out["parameters"] = task.shape.parameters();
  out["machine"] = task.machine.name;
  out["ranks"] = found.best.plan.ranks();
  out["tried"] = found.tried;
  out["simulated"] = found.simulated;
  return out;
}

/// "batch=1,prompt=512,context=4096"
GenerationLoad load_of(const Settings& settings, const Machine& machine) {
  GenerationLoad out{.ranks = settings.integer("ranks"), .prompt = 512};
  out.memory_bytes = settings.has("memory_bytes") ? static_cast<double>(settings.integer("memory_bytes"))
                                                  : 0.95 * machine.device.memory_bytes;
  for (const std::string& part : split(settings.text("generate"), ',')) {
    const size_t at = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, at);
    int64_t value = 0;
    int64_t* const to = name == "batch"     ? &out.batch
                        : name == "prompt"  ? &out.prompt
                        : name == "context" ? &out.context
                                            : nullptr;
    if (!to || !parse_int(std::string_view(part).substr(std::min(at + 1, part.size())), value) || value < 1 ||
        value > 1 << 24)
      throw Error(Code::invalid_argument,
                  cat("option generate has ", quote(part), ", expected batch=N, prompt=N or context=N"));
    *to = value;
  }
  return out;
}

Json generation_json(const GenerationPlan& plan) {
  std::vector<std::string> axes;
  for (const auto& [axis, size] :
       {std::pair("pipeline", plan.pipeline), std::pair("data", plan.data), std::pair("tensor", plan.tensor)})
    if (size > 1) axes.push_back(cat(axis, "=", size));
  const GenerationPrice& price = plan.price;
  return {{"options", {{"mesh", join(axes, ",")}}},
          {"sequences", plan.sequences},
          {"prompt_seconds", price.prompt_s},
          {"token_seconds", price.token_s},
          {"groups", plan.groups},
          {"tokens_per_second", plan.tokens_per_second()},
          {"exposed_seconds", price.exposed_s},
          {"weight_bytes", static_cast<int64_t>(price.weight_bytes)},
          {"cache_bytes", static_cast<int64_t>(price.cache_bytes)}};
}

Json plan_generation(const Settings& settings, const DecoderShape& shape, const Machine& machine) {
  const auto registry = make_registry("");
  const PriceTerms terms{registry->ops, machine, work_of(settings, machine), 0};
  const std::vector<GenerationPlan> plans =
      generation_plans(shape, load_of(settings, machine), terms, registry->kernels);
  Json out = generation_json(plans.front());
  out["others"] = Json::array();
  for (size_t i = 1; i < plans.size(); ++i) out["others"].push_back(generation_json(plans[i]));
  out["parameters"] = shape.parameters();
  out["machine"] = machine.name;
  return out;
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_machine(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    const Settings settings = settings_of(options, for_plan);
    return text_tensor(machine_json(open_machine(given(settings.text("machine"), "machine"))));
  });
}

plait_status plait_plan(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    const Settings settings = settings_of(options, for_plan);
    const DecoderShape shape = parse_decoder_shape(given(settings.text("decoder"), "decoder"));
    const Machine machine = open_machine(given(settings.text("machine"), "machine"));
    if (settings.has("generate"))
      return text_tensor(
          plan_generation(settings, shape, machine).dump(1, ' ', false, Json::error_handler_t::replace));
    const auto registry = make_registry("");
    PlanPricer pricer({.ops = registry->ops,
                       .kernels = registry->kernels,
                       .machine = machine,
                       .shape = shape,
                       .batch = settings.integer("batch"),
                       .optimizer = of_name<OptimizerKind>(optimizers, settings.text("optimizer")),
                       .work = work_of(settings, machine)});
    const SearchResult found = search_plan(pricer, limits_of(settings));
    return text_tensor(result_json(found, pricer.task()).dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
