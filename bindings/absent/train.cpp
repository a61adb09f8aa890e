// In place of core/train, core/ops/gradients, kernels/cpu/training and bindings/c/train.
#include "bindings/c/training.h"
#include "core/base/part.h"
#include "core/ops/gradients/gradients.h"
#include "kernels/cpu/training/register.h"

namespace plait {
namespace {

Error absent() { return without_part("training", "PLAIT_TRAIN"); }

plait_status absent_call() {
  return c_api::guarded([] { throw absent(); });
}
template <typename Out>
plait_status absent_call(Out** out) {
  if (out) *out = nullptr;
  return absent_call();
}

}  // namespace

void register_gradients(OpSet&) {}

namespace cpu {
void add_training(KernelTable&, Isa) {}
}  // namespace cpu

namespace c_api {

std::function<void(World&)> trainer_rank(ModelObject&, const Settings&, int) { throw absent(); }

StageOptions trainer_stages(const Settings& settings, const Mesh& mesh) {
  if (mesh.ranks() > 1 || settings.has("pipeline") || settings.has("stages") || settings.has("seats")) throw absent();
  return {};
}

std::map<std::string, Tensor> trained_tensors_of(ModelObject&, const Settings& settings) {
  if (settings.text("checkpoint").empty() && settings.text("adapter").empty()) return {};
  throw absent();
}

}  // namespace c_api
}  // namespace plait

using namespace plait;

plait_status plait_trainer_create(plait_model*, plait_options*, plait_trainer** out) { return absent_call(out); }
plait_status plait_trainer_create_on(plait_world*, plait_model*, plait_options*, plait_trainer** out) {
  return absent_call(out);
}
plait_status plait_trainer_wait(plait_trainer*, int64_t) { return absent_call(); }
plait_status plait_trainer_progress(plait_trainer*, double*) { return absent_call(); }
plait_status plait_trainer_cancel(plait_trainer*) { return absent_call(); }
plait_status plait_trainer_next(plait_trainer*, int64_t, plait_step*) { return absent_call(); }
plait_status plait_trainer_step(plait_trainer*, plait_tensor*, plait_tensor*, plait_step*) { return absent_call(); }
plait_status plait_trainer_step_inputs(plait_trainer*, const char* const*, plait_tensor* const*, int64_t, plait_step*) {
  return absent_call();
}
plait_status plait_trainer_forward(plait_trainer*, plait_tensor*, plait_tensor** logits) { return absent_call(logits); }
plait_status plait_trainer_backward(plait_trainer*, plait_tensor*, plait_tensor*) { return absent_call(); }
plait_status plait_trainer_update(plait_trainer*, plait_step*) { return absent_call(); }
plait_status plait_trainer_evaluate(plait_trainer*, const char*, plait_evaluation*) { return absent_call(); }
plait_status plait_trainer_evaluate_ids(plait_trainer*, plait_tensor*, plait_tensor*, plait_evaluation*) {
  return absent_call();
}
plait_status plait_trainer_evaluate_inputs(plait_trainer*, const char* const*, plait_tensor* const*, int64_t, plait_evaluation*) {
  return absent_call();
}
plait_status plait_trainer_save(plait_trainer*) { return absent_call(); }
plait_status plait_trainer_export(plait_trainer*, const char*) { return absent_call(); }
plait_status plait_trainer_save_adapter(plait_trainer*, const char*) { return absent_call(); }
plait_status plait_trainer_release(plait_trainer* trainer) { return trainer ? absent_call() : PLAIT_OK; }
plait_status plait_model_plan_training(plait_model*, plait_options*, plait_tensor** json) { return absent_call(json); }
