// Plans of training runs and of generation by simulation: of a decoder by its sizes or of a model, on a machine by its speeds.
#include "bindings/c/planning.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bindings/c/model_info.h"
#include "bindings/c/train/trainer_options.h"
#include "bindings/c/train/training_memory.h"
#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/plan/generate/generation_plans.h"
#include "core/plan/measure/measure.h"
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

/// The option machine; "here" is measured, as so many ranks of so many threads.
Machine machine_of(const Settings& settings, const Registry& registry) {
  const std::string name = given(settings.text("machine"), "machine");
  if (name != "here") return open_machine(name);
  int64_t ranks = settings.integer("ranks");
  if (!settings.text("mesh").empty()) ranks = Mesh::parse(settings.text("mesh")).ranks();
  constexpr int64_t most = 64;
  if (ranks > most)
    throw Error(Code::invalid_argument, cat("machine is here, and ranks ", ranks, ": at most ", most, " are measured"),
                "fewer ranks; or save a smaller measurement (plait machine --measure) and edit it");
  return measure_machine(static_cast<int>(ranks), static_cast<int>(settings.integer("threads")), registry.ops,
                         registry.kernels);
}

/// What the machine multiplies fastest, unless a type is given.
DType work_of(const Settings& settings, const Machine& machine) {
  if (settings.has("dtype")) return settings.text("dtype") == "bf16" ? DType::bf16 : DType::none;
  for (const DType dtype : {DType::bf16, DType::f16})
    if (machine.device.peak.contains(dtype)) return dtype;
  return DType::none;
}

/// Limits by the mesh; none if it is searched.
PlanLimits mesh_limits(const Settings& settings) {
  PlanLimits out;
  out.ranks = settings.integer("ranks");
  if (!settings.has("mesh") || settings.text("mesh").empty() || settings.text("mesh") == "auto") return out;
  const Mesh mesh = Mesh::parse(settings.text("mesh"));
  out.pipeline = mesh.blocks(mesh.parts("pipeline"));
  out.data = mesh.blocks(mesh.parts("data"));
  out.tensor = mesh.blocks(mesh.parts("tensor"));
  if (settings.has("ranks") && out.ranks != mesh.ranks())
    throw Error(Code::invalid_argument,
                cat("option mesh has ", mesh.ranks(), " ranks, and option ranks is ", out.ranks));
  out.ranks = mesh.ranks();
  return out;
}

PlanLimits limits_of(const Settings& settings) {
  PlanLimits out = mesh_limits(settings);
  const bool one_stage = out.pipeline == 1;
  if (settings.has("memory_bytes")) out.memory_bytes = static_cast<double>(settings.integer("memory_bytes"));
  if (settings.has("pipeline")) out.schedule = settings.text("pipeline");
  if (settings.has("seats") && !settings.text("seats").empty())
    for (const auto& of : parse_seat_widths(settings.text("seats")))
      out.seats.push_back(static_cast<int64_t>(of.size()));
  if (const int64_t seats = std::accumulate(out.seats.begin(), out.seats.end(), int64_t{0}); seats) {
    if (out.pipeline.value_or(seats) != seats || out.ranks % seats)
      throw Error(Code::invalid_argument,
                  cat("option seats is ", settings.text("seats"), ", which are ", seats, " pipeline ranks, and ",
                      out.pipeline ? cat("the mesh has ", *out.pipeline) : cat("option ranks is ", out.ranks)));
    out.pipeline = seats;
  }
  if (settings.has("micro_batch") && settings.integer("micro_batch"))
    out.micro_batch = settings.integer("micro_batch");
  if (settings.has("micro_batches") && settings.integer("micro_batches"))
    out.micro_batches = settings.integer("micro_batches");
  for (const char* key : {"pipeline", "micro_batches", "stages"})
    if (one_stage && settings.has(key) && settings.text(key) != "0" && settings.text(key) != "auto")
      throw Error(Code::invalid_argument,
                  cat("option ", key, " is ", settings.text(key), ", and the mesh ", quote(settings.text("mesh")),
                      " has no pipeline ranks"),
                  cat("leave out ", key, ", or give the mesh an axis pipeline"));
  out.seeds = settings.texts("seeds");
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

/// Sets an option to a plan's choice; a list is set by its elements.
void set_chosen(Settings& settings, const std::string& key, const Json& value) {
  if (!value.is_array()) return settings.set(key, value.is_string() ? value.get<std::string>() : value.dump());
  for (const Json& one : value) set_chosen(settings, key, one);
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
    if (!plan.seats.empty()) out["seats"] = plan.seats_text();
    out["micro_batches"] = micro_batches_of(task, plan);
  }
  out["batch"] = task.batch;
  out["seq"] = task.decoder.shape.sequence;
  out["micro_batch"] = plan.micro_batch;
  if (plan.data > 1) out["zero"] = plan.zero;
  out["recompute"] = recomputes[static_cast<size_t>(plan.recompute)];
  // Left out, seeds would be searched.
  const DecoderShape& shape = task.decoder.shape;
  if (!plan.seeds.empty()) out["seeds"] = plan.seeds;
  else if (!task.decoder.graph && (plan.tensor > 1 || shape.experts)) out["seeds"] = {"tensor"};
  if (task.training.lora.rank) out["lora"] = task.training.lora.rank;
  return out;
}

Json memory_json(const StepPrice& price) {
  Json out = Json::array();
  for (size_t i = 0; i < price.memory.size(); ++i) {
    const PlannedBytes& one = price.memory[i];
    Json& row = out.emplace_back(Json::object());
    row["pipeline"] = i;
    int64_t total = 0;  // of whole bytes, which shares of sizes that ranks do not divide are not
    for (const auto& [kind, value] : {std::pair("weights", one.weights), std::pair("gradients", one.gradients),
                                      std::pair("optimizer", one.optimizer), std::pair("section", one.arena),
                                      std::pair("slots", one.slots), std::pair("messages", one.messages)}) {
      const auto bytes = static_cast<int64_t>(value);
      row[kind] = bytes;
      total += bytes;
    }
    row["total"] = total;
  }
  return out;
}

/// The step as it runs: for pages. Of a long one the picture has the beginning.
Json drawings_json(const StepPrice& price, const StepPrice& planned) {
  constexpr size_t most_boxes = 6000, cells = 240;
  std::vector<TimelineSpan> spans = price.timeline.spans;
  spans.resize(std::min(spans.size(), most_boxes));
  const Timeline drawn = timeline_of(std::move(spans), static_cast<int32_t>(price.timeline.ranks.size()));
  Json curves = Json::array();
  for (size_t rank = 0; rank < price.slots.size(); ++rank) {
    const double held = planned.memory[rank].total() - planned.memory[rank].slots;
    Json& curve = curves.emplace_back(Json::array());
    for (const double bytes : most_in_cells(price.slots[rank], price.timeline.makespan_s, cells))
      curve.push_back(static_cast<int64_t>(held + bytes));
  }
  return {{"picture", timeline_svg(drawn)},
          {"picture_seconds", drawn.makespan_s},
          {"pipeline_seconds", price.timeline.makespan_s},
          {"memory_over_time", std::move(curves)}};
}

Json price_json(const StepPrice& price, const PlanTask& task) {
  return {{"options", options_json(price.plan, task)},
          {"step_seconds", price.step_s},
          {"tokens_per_second", price.tokens_per_second},
          {"mfu", price.mfu},
          {"bubble", price.bubble},
          {"micro_batches", price.micro_batches},
          {"exposed",
           {{"collectives", price.collectives_s},
            {"messages", price.messages_s},
            {"reduction", price.reduce_s},
            {"control", price.control_s}}},
          {"update_seconds", price.update_s},
          {"most_bytes", static_cast<int64_t>(price.most_bytes())}};
}

Json result_json(const SearchResult& found, const PlanTask& task, int64_t parameters) {
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
  out["parameters"] = parameters;
  out["machine"] = task.machine.name;
  out["ranks"] = found.best.plan.ranks();
  out["tried"] = found.tried;
  out["simulated"] = found.simulated;
  return out;
}

/// "batch=1,prompt=512,context=4096"
GenerationLoad load_of(const Settings& settings, const Machine& machine) {
  for (const char* key : {"pipeline", "zero", "recompute", "micro_batch", "micro_batches", "seats"})
    if (settings.has(key))
      throw Error(Code::invalid_argument, cat("option ", key, " is given, and so is generate"),
                  cat(key, " belongs to training: leave out one of them"));
  const PlanLimits limits = mesh_limits(settings);
  GenerationLoad out{.ranks = limits.ranks, .prompt = 512};
  out.pipeline = limits.pipeline, out.data = limits.data, out.tensor = limits.tensor;
  out.memory_bytes = settings.has("memory_bytes") ? static_cast<double>(settings.integer("memory_bytes"))
                                                  : 0.95 * machine.device.memory_bytes;
  constexpr int64_t most = 1 << 24;
  for (const std::string& part : split(settings.text("generate"), ',')) {
    const size_t at = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, at);
    int64_t value = 0;
    int64_t* const to = name == "batch"     ? &out.batch
                        : name == "prompt"  ? &out.prompt
                        : name == "context" ? &out.context
                                            : nullptr;
    if (!to || !parse_int(std::string_view(part).substr(std::min(at + 1, part.size())), value) || value < 1 ||
        value > most)
      throw Error(Code::invalid_argument, cat("option generate has ", quote(part),
                                              ", expected batch=N, prompt=N or context=N, of 1 to ", most));
    *to = value;
  }
  if (out.context && out.context < out.prompt)
    throw Error(Code::invalid_argument,
                cat("option generate has a context of ", out.context, " tokens, and a prompt of ", out.prompt),
                "the context holds the prompt and what is generated: give more, or leave it out");
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

Json plan_generation(const Settings& settings, const PlannedDecoder& decoder, const Machine& machine, DType work) {
  const PriceTerms terms{decoder.compile.ops, machine, work, 0};
  const std::vector<GenerationPlan> plans = generation_plans(decoder, load_of(settings, machine), terms);
  Json out = generation_json(plans.front());
  out["others"] = Json::array();
  for (size_t i = 1; i < plans.size(); ++i) out["others"].push_back(generation_json(plans[i]));
  out["machine"] = machine.name;
  return out;
}

/// What the engine takes of a plan; throws if it refuses it.
using Exactly = std::function<std::vector<EngineBytes>(const Json& options)>;

/// Puts the fastest plan first that the engine takes and that fits by its own count, which becomes the plan's.
void take_exactly(SearchResult& found, const PlanTask& task, double limit, const Exactly& exactly) {
  std::vector<StepPrice> plans{found.best};
  plans.insert(plans.end(), found.others.begin(), found.others.end());
  std::exception_ptr refused;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < plans.size(); ++i) {
    std::vector<EngineBytes> bytes;
    try {
      bytes = exactly(options_json(plans[i].plan, task));
    } catch (const Error& error) {
      if (!is_about_input(error.code()) && error.code() != Code::out_of_memory) throw;  // too little memory is an answer
      if (!refused) refused = std::current_exception();
      continue;
    }
    for (size_t k = 0; k < bytes.size() && k < plans[i].memory.size(); ++k) {
      PlannedBytes& one = plans[i].memory[k];
      const auto as_double = [](int64_t value) { return static_cast<double>(value); };
      one = {as_double(bytes[k].weights), as_double(bytes[k].gradients), as_double(bytes[k].optimizer),
             as_double(bytes[k].arena), as_double(bytes[k].slots), one.messages};
    }
    if (plans[i].most_bytes() > limit) {
      least = std::min(least, static_cast<int64_t>(plans[i].most_bytes()));
      continue;
    }
    found.best = plans[i];
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(i));
    found.others = std::move(plans);
    return;
  }
  if (least == std::numeric_limits<int64_t>::max()) std::rethrow_exception(refused);
  throw Error(Code::out_of_memory,
              cat("no plan fits: the least takes ", human_bytes(least), " on a rank, which has ",
                  human_bytes(static_cast<int64_t>(limit))),
              "more ranks, or a smaller micro-batch");
}

Json plan_training(const Settings& settings, PlanTask task, int64_t parameters, const Exactly& exactly = {}) {
  PlanPricer pricer(std::move(task));
  const PlanLimits limits = limits_of(settings);
  SearchResult found = search_plan(pricer, limits);
  const double limit =
      limits.memory_bytes > 0 ? limits.memory_bytes : 0.95 * pricer.task().machine.device.memory_bytes;
  if (exactly) take_exactly(found, pricer.task(), limit, exactly);
  Json out = result_json(found, pricer.task(), parameters);
  out["limit_bytes"] = static_cast<int64_t>(limit);
  if (settings.boolean("drawings")) out.update(drawings_json(pricer.price(found.best.plan), found.best));
  return out;
}

/// Options that a plan decides.
Settings without_plan(const Settings& settings) {
  return settings.without({"mesh", "pipeline", "stages", "seats", "micro_batch", "micro_batches", "zero", "recompute", "generate",
                           "machine", "ranks", "drawings", "seeds"});
}

/// The model multiplies in what it has; what the machine's peaks do not specify, in the fastest.
DType work_at_hand(const Settings& settings, const Machine& machine) {
  return machine.device.peak.contains(DType::f32) ? DType::none : work_of(settings, machine);
}

Json plan_model(ModelObject& model, const Settings& settings, const Machine& machine, LoadProgress& progress) {
  const Settings base = without_plan(settings);
  const OpenedModel& opened = model.opened();
  const DType work = work_at_hand(settings, machine);
  Json out;
  if (settings.has("generate")) {
    CompileOptions compile = generator_compile_options(model, base);
    compile.seeds = settings.texts("seeds");
    compile.progress = &progress;
    const PlannedDecoder decoder = planned_decoder(opened.imported.graph, compile, 0);
    out = plan_generation(settings, decoder, machine, work);
    out["parameters"] = parameters_of(opened.imported.graph);
    return out;
  }
  TrainerPlan trainer(model, base, 1);
  trainer.compile.progress = &progress;
  TrainingOptions& training = trainer.options.training;
  training.host_loss = false;  // of plans only what a run with data does
  const int64_t sequence = sample_tokens(base, opened.config.context);
  const Exactly exactly = [&](const Json& options) {
    Settings exact = base;
    for (const auto& [key, value] : options.items()) set_chosen(exact, key, value);
    TrainerPlan plan(model, exact, 1);
    plan.compile.progress = &progress;
    plan.options.training.host_loss = false;
    return engine_bytes(plan, sequence);
  };
  return plan_training(settings,
                       {.decoder = planned_decoder(std::move(trainer.graph), trainer.compile, sequence),
                        .machine = machine,
                        .batch = trainer.options.batch,
                        .training = training,
                        .work = work},
                       parameters_of(opened.imported.graph), exactly);
}

Json plan_shape(const Settings& settings) {
  const auto registry = make_registry("");
  PlannedDecoder decoder{CompileOptions{registry->ops, registry->kernels},
                         parse_decoder_shape(given(settings.text("decoder"), "decoder"))};
  decoder.compile.seeds = settings.texts("seeds");
  const Machine machine = machine_of(settings, *registry);
  const int64_t parameters = decoder.shape.parameters();
  const DType work = work_of(settings, machine);
  if (settings.has("generate")) {
    Json out = plan_generation(settings, decoder, machine, work);
    out["parameters"] = parameters;
    return out;
  }
  TrainingOptions training;
  training.optimizer.kind = of_name<OptimizerKind>(optimizers, settings.text("optimizer"));
  training.lora.rank = settings.integer("lora");
  return plan_training(settings,
                       {.decoder = decoder,
                        .machine = machine,
                        .batch = settings.integer("batch"),
                        .training = training,
                        .work = work},
                       parameters);
}

/// What is searched over for the mesh "auto": ranks of this process, or the world's.
std::vector<int64_t> rank_counts(const WorldObject* world) {
  if (world) return {world->size()};
  std::vector<int64_t> out;
  for (int64_t ranks = 1; ranks <= std::min(usable_processors(), 8); ranks *= 2) out.push_back(ranks);
  return out;
}

/// Settings whose plan is searched for so many ranks.
Settings searched(const Settings& settings, int64_t ranks, bool trains) {
  Settings out = settings.without({"mesh", "memory_bytes"});
  out.set("ranks", cat(ranks));
  if (!trains) out.set("generate", "batch=1,prompt=512,context=1024");
  return out;
}

/// Three digits.
std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

}  // namespace

Settings with_chosen_plan(ModelObject& model, const Settings& settings, WorldObject* world, WorldObject::Kind kind,
                          LoadProgress& progress) {
  if (settings.text("mesh") != "auto") return settings;
  const bool trains = kind == WorldObject::Kind::trainer;
  const char* const measure = trains ? "step_seconds" : "token_seconds";
  const Registry& registry = *model.opened().registry;
  const auto threads = static_cast<int>(settings.integer("threads"));
  Json best;
  std::vector<std::string> seen;
  std::exception_ptr refused;
  for (const int64_t ranks : rank_counts(world)) {
    progress.check();
    const Machine machine = world ? world->measured(registry, model.settings().text("isa"), threads)
                                  : measure_machine(static_cast<int>(ranks), threads, registry.ops, registry.kernels);
    try {
      Json found = plan_model(model, searched(settings, ranks, trains), machine, progress);
      const std::string mesh = found.at("options").value("mesh", "");
      // One request at a time is not faster with replicas, whatever was measured.
      if (!trains && !best.is_null() && mesh.find("data=") != std::string::npos) continue;
      seen.push_back(cat(mesh.empty() ? "one rank" : mesh, " ", milliseconds(found.at(measure).get<double>())));
      if (best.is_null() || found.at(measure).get<double>() < best.at(measure).get<double>()) best = std::move(found);
    } catch (const Error& error) {  // so many ranks have no plan
      if (error.code() != Code::invalid_argument && error.code() != Code::out_of_memory) throw;
      refused = std::current_exception();
    }
  }
  if (best.is_null()) std::rethrow_exception(refused);
  Settings out = settings.without({"mesh"});
  for (const auto& [key, value] : best.at("options").items())
    if (key == "mesh" || (key != "batch" && key != "seq" && key != "lora" && !settings.has(key)))
      set_chosen(out, key, value);
  std::string chosen = best.at("options").value("mesh", "");
  if (trains)
    for (const Json& one : best.at("neighbours"))
      seen.push_back(cat(one.at("changed").get<std::string>(), ": ", one.at("lost").get<std::string>()));
  model.log().write(LogLevel::info,
                    cat("mesh auto: ", chosen.empty() ? "one rank" : chosen, ", by simulation of a ",
                        trains ? "step" : "token", " on this machine: ", join(seen, "; ")));
  return out;
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_machine(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    return text_tensor(machine_json(machine_of(settings_of(options, for_plan), *make_registry(""))));
  });
}

plait_status plait_plan(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    return text_tensor(plan_shape(settings_of(options, for_plan)).dump(1, ' ', false, Json::error_handler_t::replace));
  });
}

plait_status plait_model_best_plan(plait_model* model, plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    const Settings settings = settings_of(options, for_plan | for_trainer | for_generator);
    ModelObject& of_model = *object_of<ModelObject>(model);
    const ModelObject::Work search(of_model);
    const Machine machine = machine_of(settings, *of_model.opened().registry);
    return text_tensor(plan_model(of_model, settings, machine, search.progress())
                           .dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
