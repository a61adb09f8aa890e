#pragma once
// The part of a trainer's plan that describes its pipeline.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/passes/train/compile_training.h"
#include "core/train/pipeline.h"

namespace plait::c_api {

/// Bytes of a rank.
struct PipelineBytes {
  int64_t held = 0;              ///< weights, gradients and optimizer state
  int64_t arena = 0;             ///< of one section
  std::vector<int64_t> trained;  ///< by stage: its trained weights, as far as the rank holds them
};

/// The first rank of a pipeline coordinate.
struct PipelineRankPlan {
  const TrainingModel* model = nullptr;
  PipelineBytes bytes;
};

/// Stages, what crosses, each rank's memory, and the timeline of a step. `schedule`: its name. `steps`: of the plan.
nlohmann::ordered_json pipeline_json(const std::string& schedule, const Pipeline::Plan& plan, int64_t steps,
                                     const std::vector<PipelineRankPlan>& ranks);

}  // namespace plait::c_api
