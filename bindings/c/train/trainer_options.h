#pragma once
// Converts the options of a trainer.
#include "bindings/c/options.h"
#include "core/train/trainer.h"

namespace plait::c_api {

/// `context`: of the model, 0 if unknown. Throws Error(invalid_argument) for conflicting options.
TrainerOptions trainer_options(const Settings& settings, int64_t context);

/// Reads the schedule's file, if it is one.
PipelineOptions pipeline_options(const Settings& settings);

/// Checks the options of a pipeline, before anything is loaded. Throws Error(invalid_argument) for a schedule, cut or seats
/// that do not fit the mesh, and for an option without an effect.
void check_pipeline(const Settings& settings, const PipelineOptions& options, const Mesh& mesh);

/// Maximum inputs of a sample.
int64_t sample_tokens(const Settings& settings, int64_t context);

}  // namespace plait::c_api
