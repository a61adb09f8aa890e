// In place of core/plan, and of bindings/c/plan.
#include "bindings/c/planning.h"
#include "core/base/part.h"
#include "core/plan/measure/measure.h"

namespace plait {
namespace {

Error absent() { return without_part("the planner", "PLAIT_PLAN"); }

}  // namespace

Machine measure_machine(Communicator&, int, const OpSet&, const KernelTable&) { throw absent(); }

namespace c_api {

Settings with_chosen_plan(ModelObject&, const Settings& settings, WorldObject*, WorldObject::Kind, LoadProgress&) {
  if (settings.text("mesh") == "auto") throw absent();
  return settings;
}

}  // namespace c_api
}  // namespace plait

using namespace plait;
using namespace plait::c_api;

plait_status plait_machine(plait_options*, plait_tensor** json) {
  return create(json, []() -> std::shared_ptr<Tensor> { throw absent(); });
}
plait_status plait_plan(plait_options*, plait_tensor** json) {
  return create(json, []() -> std::shared_ptr<Tensor> { throw absent(); });
}
plait_status plait_model_best_plan(plait_model*, plait_options*, plait_tensor** json) {
  return create(json, []() -> std::shared_ptr<Tensor> { throw absent(); });
}
