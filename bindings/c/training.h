#pragma once
// What other objects take of training. bindings/c/train has it, a part that a library can be built without (PLAIT_TRAIN).
#include <functional>
#include <map>
#include <string>

#include "bindings/c/objects.h"
#include "core/passes/stage/stage.h"

namespace plait::c_api {

/// Opens what a rank of a trainer with these settings needs; the result serves it until rank 0 ends it. `threads`: default of the
/// settings. The model must outlive it. Throws the errors of plait_trainer_create.
std::function<void(World&)> trainer_rank(ModelObject& model, const Settings& settings, int threads);

/// The stages of a trainer with this mesh. Throws Error(invalid_argument) for options of a pipeline that do not fit the mesh, or
/// have no effect there.
StageOptions trainer_stages(const Settings& settings, const Mesh& mesh);

/// The model's tensors that a checkpoint or an adapter changes, by the options of these names; empty without either.
std::map<std::string, Tensor> trained_tensors_of(ModelObject& model, const Settings& settings);

}  // namespace plait::c_api
