#pragma once
// What the options of a trainer say.
#include "bindings/c/options.h"
#include "core/train/trainer.h"

namespace plait::c_api {

/// `context`: of the model, 0 where nothing is known of it. Throws Error(invalid_argument) for what does not go together.
TrainerOptions trainer_options(const Settings& settings, int64_t context);

/// Most inputs of a sample.
int64_t sample_tokens(const Settings& settings, int64_t context);

}  // namespace plait::c_api
