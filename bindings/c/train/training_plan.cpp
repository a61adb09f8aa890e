// The plan of a trainer, from its compiled programs: nothing is loaded, and no data are read.
#include "bindings/c/planning.h"
#include "bindings/c/train/training_memory.h"
#include "bindings/c/train/trainer_options.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

std::string_view recompute_name(Recompute how) {
  static constexpr std::string_view names[] = {"off", "selective", "rounded", "full"};
  return names[static_cast<size_t>(how)];
}

Json plan_json(const std::vector<TrainingModel>& models, const TrainingOptions& training) {
  std::vector<RankMemory> ranks;
  for (const TrainingModel& one : models) ranks.push_back(memory_of(one, training));
  const TrainingModel& model = models.front();
  RankMemory& first = ranks.front();
  Json trained = Json::array();
  int64_t elements = 0;
  for (const TrainedParameter& parameter : model.parameters) {
    int64_t bytes = 0;  // of a rank that holds it
    for (const RankMemory& rank : ranks) bytes = std::max(bytes, rank.bytes(parameter.key));
    elements += parameter.shape.elements();
    trained.push_back({{"name", parameter.name},
                       {"type", cat(dtype_name(parameter.dtype()), parameter.shape.text())},
                       {"elements", parameter.shape.elements()},
                       {"rank_bytes", bytes},
                       {"decays", parameter.decays}});
  }
  const auto sum = [&](Part part) { return first.bytes(part); };
  const int64_t held = sum(Part::weights) + sum(Part::trained) + sum(Part::gradients) + sum(Part::optimizer);
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
            {"rank_arena_bytes", first.arena},
            {"rank_bytes", held + first.arena}}},
          {"programs", std::move(first.programs)},
          {"trained", std::move(trained)}};
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_plan_training(plait_model* model, plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    ModelObject& of_model = *object_of<ModelObject>(model);
    const ModelObject::Work work(of_model);
    const Settings settings = with_chosen_plan(of_model, settings_of(options, for_trainer), nullptr,
                                               WorldObject::Kind::trainer, work.progress());
    TrainerPlan plan(of_model, settings, 1);
    const TrainingOptions& training = plan.options.training;
    Pipeline pipeline(training.pipeline, plan.compile.mesh);
    plan.compile.stages = pipeline.stages();
    const std::vector<TrainingModel> models = compiled(plan, pipeline);
    Json out = plan_json(models, training);
    if (pipeline.in_stages())
      out["pipeline"] = pipeline_of(plan, pipeline, models,
                                    sample_tokens(settings, of_model.opened().config.context));
    return text_tensor(out.dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
