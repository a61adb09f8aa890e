// The plan of a trainer, from its compiled programs: nothing is loaded, and no data are read.
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bindings/c/objects.h"

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
      for (const char* suffix : {".gradient", ".reduced"}) parts_[parameter.key + suffix] = Part::gradients;
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

/// "all_reduce", as in plans of generation.
std::string name_of(CollectiveCall::Kind kind) {
  std::string out;
  for (char letter : kind_name(kind)) {
    if (std::isupper(static_cast<unsigned char>(letter)) && !out.empty()) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return out;
}

Json program_json(std::string_view name, const Program& program) {
  Json collectives = Json::object();
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind != Instruction::Kind::collective || instruction.call.kind == CollectiveCall::Kind::shard)
      continue;
    Json& one = collectives[name_of(instruction.call.kind)];
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

Json plan_json(const TrainingModel& model, const TrainingOptions& training) {
  const Parts parts(model, training.optimizer.kind);
  std::map<std::string, std::pair<Part, int64_t>> held;  // programs share arrays
  Json programs = Json::array();
  int64_t arena = 0;
  for (const auto& [name, which] :
       {std::pair("micro_batch", TrainingProgram::accumulate), std::pair("last_micro_batch", TrainingProgram::settle),
        std::pair("norm", TrainingProgram::norm), std::pair("update", TrainingProgram::update),
        std::pair("evaluate", TrainingProgram::evaluate)}) {
    if (!model.has(which)) continue;
    const Program* const program = &model.program(which);
    programs.push_back(program_json(name, *program));
    arena = std::max(arena, program->arena_bytes);
    for (const StoreEntry& entry : program->entries)
      held[entry.key] = {parts.of(entry.key), bytes_of(entry, program->symbols)};
  }
  int64_t sums[4] = {};
  for (const auto& [key, one] : held) sums[static_cast<size_t>(one.first)] += one.second;
  Json trained = Json::array();
  int64_t elements = 0;
  for (const TrainedParameter& parameter : model.parameters) {
    auto found = held.find(parameter.key);
    elements += parameter.shape.elements();
    trained.push_back({{"name", parameter.name},
                       {"type", cat(dtype_name(parameter.dtype()), parameter.shape.text())},
                       {"elements", parameter.shape.elements()},
                       {"rank_bytes", found == held.end() ? 0 : found->second.second},
                       {"decays", parameter.decays}});
  }
  auto sum = [&](Part part) { return sums[static_cast<size_t>(part)]; };
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
            {"rank_arena_bytes", arena},
            {"rank_bytes", std::accumulate(std::begin(sums), std::end(sums), arena)}}},
          {"programs", std::move(programs)},
          {"trained", std::move(trained)}};
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_plan_training(plait_model* model, plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    TrainerPlan plan(*object_of<ModelObject>(model), settings_of(options, for_trainer), 1);
    const TrainingOptions& training = plan.options.training;
    const TrainingModel compiled = compile_training(std::move(plan.graph), plan.compile, training);
    return text_tensor(plan_json(compiled, training).dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
