#include "bindings/c/train/training_memory.h"

#include <algorithm>

#include "bindings/c/train/pipeline_plan.h"
#include "core/exec/store_keys.h"
#include "core/train/data/packing.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

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

std::vector<TrainingModel> compiled(const TrainerPlan& plan, const Pipeline& pipeline) {
  const Mesh& mesh = plan.compile.mesh;
  const AxisList axis = mesh.parts("pipeline");
  const auto model_of = training_compiler(plan.graph, plan.compile, plan.options.training);
  std::vector<TrainingModel> out;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (mesh.block(rank, axis) != static_cast<int64_t>(out.size())) continue;
    CompileOptions own = plan.compile;
    own.rank = rank;
    out.push_back(model_of(own));
    if (!pipeline.in_stages()) break;
  }
  return out;
}

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
