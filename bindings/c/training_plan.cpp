// The plan of a trainer, from its compiled programs: nothing is loaded, and no data are read.
#include "bindings/c/training_plan.h"

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"
#include "bindings/c/planning.h"
#include "bindings/c/pipeline_plan.h"
#include "bindings/c/trainer_options.h"
#include "core/exec/store_keys.h"
#include "core/train/data/packing.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

/// Purpose of a Store array.
enum class Part { weights, trained, gradients, optimizer };

/// Maps keys to purposes: a trained parameter's key, with the suffix of its gradient or optimizer state.
class Parts {
 public:
  Parts(const TrainingModel& model, OptimizerKind optimizer) {
    for (const TrainedParameter& parameter : model.parameters) {
      parts_[parameter.key] = Part::trained;
      for (const std::string& key : store_keys::gradient_keys(parameter.key)) parts_[key] = Part::gradients;
      for (const OptimizerState& state : optimizer_states(optimizer, parameter.shape.rank()))
        parts_[parameter.key + state.suffix] = Part::optimizer;
    }
  }
  Part of(const std::string& key) const {
    auto found = parts_.find(key);
    return found == parts_.end() ? Part::weights : found->second;
  }

 private:
  std::map<std::string, Part> parts_;
};

int64_t bytes_of(const StoreEntry& entry, const SymbolTable& symbols) {
  const std::vector<int64_t> values(static_cast<size_t>(symbols.size()));
  int64_t elements = 1;
  for (const Dim& dim : entry.dims) elements *= dim.evaluate(values);
  return packed_bytes(elements, dtype_bits(entry.dtype));
}

Json program_json(std::string_view name, const Program& program) {
  Json collectives = Json::object();
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != Instruction::Kind::collective || instruction.call.kind == CollectiveKind::shard)
      continue;
    Json& one = collectives[std::string(kind_name(instruction.call.kind))];
    if (one.is_null()) one = {{"calls", 0}, {"async", 0}};
    one["calls"] = one["calls"].get<int64_t>() + 1;
    one["async"] = one["async"].get<int64_t>() + (instruction.call.async ? 1 : 0);
  }
  return {{"name", name},
          {"instructions", program.instructions.size()},
          {"arena_bytes", program.arena_bytes},
          {"collectives", std::move(collectives)}};
}

std::string_view recompute_name(Recompute how) {
  static constexpr std::string_view names[] = {"off", "selective", "rounded", "full"};
  return names[static_cast<size_t>(how)];
}

/// What a rank holds.
struct RankMemory {
  std::map<std::string, std::pair<Part, int64_t>> held;  ///< by key of the Store; programs share arrays
  int64_t arena = 0;
  Json programs = Json::array();

  int64_t bytes(Part part) const {
    int64_t out = 0;
    for (const auto& [key, one] : held) out += one.first == part ? one.second : 0;
    return out;
  }
  /// Of a trained parameter; 0 if the rank has no part of it.
  int64_t bytes(const std::string& key) const {
    const auto found = held.find(key);
    return found == held.end() ? 0 : found->second.second;
  }
};

RankMemory memory_of(const TrainingModel& model, const TrainingOptions& training) {
  const Parts parts(model, training.optimizer.kind);
  RankMemory out;
  const auto take = [&](const std::string& name, const Program& program) {
    out.programs.push_back(program_json(name, program));
    out.arena = std::max(out.arena, program.arena_bytes);
    for (const StoreEntry& entry : program.entries)
      out.held[entry.key] = {parts.of(entry.key), bytes_of(entry, program.symbols)};
  };
  for (const auto& [name, which] :
       {std::pair("micro_batch", TrainingProgram::accumulate), std::pair("last_micro_batch", TrainingProgram::settle),
        std::pair("norm", TrainingProgram::norm), std::pair("update", TrainingProgram::update),
        std::pair("evaluate", TrainingProgram::evaluate)}) {
    if (model.has(which)) take(name, model.program(which));
    if (const auto cut = model.sections.find(which); cut != model.sections.end())
      for (const StageSection& section : cut->second)
        take(cat(name, " ", section.stage, action_letter(section.kind)), *section.program);
  }
  return out;
}

PipelineBytes pipeline_bytes(const TrainingModel& model, const RankMemory& memory) {
  PipelineBytes out;
  out.held = memory.bytes(Part::weights) + memory.bytes(Part::trained) + memory.bytes(Part::gradients) +
             memory.bytes(Part::optimizer);
  out.arena = memory.arena;
  for (const StageCut& stage : model.cut) {
    int64_t& sum = out.trained.emplace_back(0);
    for (const std::string& key : stage.parameters) sum += memory.bytes(key);
  }
  return out;
}

/// Of the first rank of each pipeline coordinate; without stages of rank 0.
std::vector<TrainingModel> compiled(TrainerPlan& plan, const Pipeline& pipeline) {
  const Mesh& mesh = plan.compile.mesh;
  const AxisList axis = mesh.parts("pipeline");
  std::vector<TrainingModel> out;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.block(rank, axis) != static_cast<int64_t>(out.size())) continue;
    plan.compile.rank = rank;
    out.push_back(compile_training(plan.graph, plan.compile, plan.options.training));
    if (!pipeline.in_stages()) break;
  }
  return out;
}

/// For a step of full samples of `seq` tokens.
Json pipeline_of(const TrainerPlan& plan, Pipeline& pipeline, const std::vector<TrainingModel>& models, int64_t seq) {
  const TrainingOptions& training = plan.options.training;
  std::vector<PipelineRankPlan> ranks;
  for (const TrainingModel& model : models) ranks.push_back({&model, pipeline_bytes(model, memory_of(model, training))});
  pipeline.set_edges(models.front().edges);
  const Mesh& mesh = models.front().mesh;
  const std::vector<int64_t> lengths(static_cast<size_t>(plan.options.batch), seq);
  const RowPlan rows = plan_rows(lengths, training.row_tokens, mesh.blocks(mesh.parts("data")), pipeline.micro_batches());
  const std::string name = training.pipeline.lists() ? "lists of a file" : training.pipeline.schedule;
  const auto micro_batches = static_cast<int64_t>(rows.size());
  if (!pipeline.is_asynchronous()) return pipeline_json(name, pipeline.training(micro_batches), 1, ranks);
  // Enough for all versions: each rank has updated while the first rank's earliest micro-batch is in flight.
  const int64_t steps = plan.options.flush_every ? plan.options.flush_every : 2 * mesh.blocks(mesh.parts("pipeline"));
  return pipeline_json(name, pipeline.window(micro_batches, steps), steps, ranks);
}

Json plan_json(const std::vector<TrainingModel>& models, const TrainingOptions& training) {
  std::vector<RankMemory> ranks;
  for (const TrainingModel& one : models) ranks.push_back(memory_of(one, training));
  const TrainingModel& model = models.front();
  RankMemory& first = ranks.front();
  Json trained = Json::array();
  int64_t elements = 0;
  for (const TrainedParameter& parameter : model.parameters) {
    int64_t bytes = 0;  // of a rank that holds it
    for (const RankMemory& rank : ranks) bytes = std::max(bytes, rank.bytes(parameter.key));
    elements += parameter.shape.elements();
    trained.push_back({{"name", parameter.name},
                       {"type", cat(dtype_name(parameter.dtype()), parameter.shape.text())},
                       {"elements", parameter.shape.elements()},
                       {"rank_bytes", bytes},
                       {"decays", parameter.decays}});
  }
  const auto sum = [&](Part part) { return first.bytes(part); };
  const int64_t held = sum(Part::weights) + sum(Part::trained) + sum(Part::gradients) + sum(Part::optimizer);
  return {{"mesh", model.mesh.text()},
          {"ranks", model.mesh.ranks()},
          {"row_tokens", training.row_tokens},
          {"recompute", recompute_name(training.recompute)},
          {"zero", training.zero},
          {"totals",
           {{"trained_parameters", elements},
            {"rank_frozen_bytes", sum(Part::weights)},
            {"rank_trained_bytes", sum(Part::trained)},
            {"rank_gradient_bytes", sum(Part::gradients)},
            {"rank_optimizer_bytes", sum(Part::optimizer)},
            {"rank_arena_bytes", first.arena},
            {"rank_bytes", held + first.arena}}},
          {"programs", std::move(first.programs)},
          {"trained", std::move(trained)}};
}

}  // namespace

std::vector<EngineBytes> engine_bytes(TrainerPlan& plan, int64_t seq) {
  Pipeline pipeline(plan.options.training.pipeline, plan.compile.mesh);
  plan.compile.stages = pipeline.stages();
  const std::vector<TrainingModel> models = compiled(plan, pipeline);
  Json stages = Json::array();
  if (pipeline.in_stages()) stages = pipeline_of(plan, pipeline, models, seq).at("ranks");
  std::vector<EngineBytes> out;
  for (const TrainingModel& model : models) {
    const RankMemory memory = memory_of(model, plan.options.training);
    EngineBytes& one = out.emplace_back();
    one.weights = memory.bytes(Part::weights) + memory.bytes(Part::trained);
    one.gradients = memory.bytes(Part::gradients);
    one.optimizer = memory.bytes(Part::optimizer);
    one.arena = memory.arena;
    if (out.size() > stages.size()) continue;
    one.weights += stages[out.size() - 1].at("version_bytes").get<int64_t>();
    one.slots = stages[out.size() - 1].at("slot_bytes").get<int64_t>();
  }
  return out;
}

}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_plan_training(plait_model* model, plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    ModelObject& of_model = *object_of<ModelObject>(model);
    const ModelObject::Work work(of_model);
    const Settings settings = with_chosen_plan(of_model, settings_of(options, for_trainer), nullptr,
                                               WorldObject::Kind::trainer, work.progress());
    TrainerPlan plan(of_model, settings, 1);
    const TrainingOptions& training = plan.options.training;
    Pipeline pipeline(training.pipeline, plan.compile.mesh);
    plan.compile.stages = pipeline.stages();
    const std::vector<TrainingModel> models = compiled(plan, pipeline);
    Json out = plan_json(models, training);
    if (pipeline.in_stages())
      out["pipeline"] = pipeline_of(plan, pipeline, models,
                                    sample_tokens(settings, of_model.opened().config.context));
    return text_tensor(out.dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
