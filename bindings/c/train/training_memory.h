#pragma once
// What a trainer's ranks take, from its compiled programs.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/train/trainer_object.h"
#include "core/train/pipeline.h"

namespace plait::c_api {

/// Purpose of a Store array.
enum class Part { weights, trained, gradients, optimizer };

/// What a rank holds.
struct RankMemory {
  std::map<std::string, std::pair<Part, int64_t>> held;  ///< by key of the Store; programs share arrays
  int64_t arena = 0;
  nlohmann::ordered_json programs = nlohmann::ordered_json::array();

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

RankMemory memory_of(const TrainingModel& model, const TrainingOptions& training);

/// The models of the first rank of each pipeline coordinate; without stages of rank 0.
std::vector<TrainingModel> compiled(const TrainerPlan& plan, const Pipeline& pipeline);

/// The part of the plan that describes the pipeline, for a step of full samples of `seq` tokens.
nlohmann::ordered_json pipeline_of(const TrainerPlan& plan, Pipeline& pipeline,
                                   const std::vector<TrainingModel>& models, int64_t seq);

/// Bytes of a rank as the engine takes them, without kernels' scratch.
struct EngineBytes {
  int64_t weights = 0, gradients = 0, optimizer = 0;  ///< weights: trained, in all versions, and constant
  int64_t arena = 0;                                  ///< of the largest program
  int64_t slots = 0;                                  ///< of micro-batches in flight
  int64_t total() const { return weights + gradients + optimizer + arena + slots; }
};

/// By pipeline coordinate, of a step of full samples of `seq` tokens. Compiles for a rank of each; errors as in plait_trainer_create.
std::vector<EngineBytes> engine_bytes(TrainerPlan& plan, int64_t seq);

}  // namespace plait::c_api
