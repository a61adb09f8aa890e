#pragma once
// The mesh "auto": the best plan for the ranks and the memory at hand.
#include "bindings/c/objects.h"

namespace plait::c_api {

/// The settings, with what a plan decides in place of the mesh "auto": of a trainer mesh, stages, micro-batch, ZeRO and recomputation
/// that are not given, for the least time of a step; of a generator the mesh of the fastest token. The ranks are the world's, which
/// is not in use; without one threads of this process, and how many is searched, too. The machine is measured, for some seconds. The
/// model's log has what was chosen, and why. Throws what plait_model_best_plan throws.
Settings with_chosen_plan(ModelObject& model, const Settings& settings, WorldObject* world, WorldObject::Kind kind,
                          LoadProgress& progress);

}  // namespace plait::c_api
