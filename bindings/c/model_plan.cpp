// The plan of a model on a mesh: the report of pass `shard` as JSON.
#include "core/passes/shard/report.h"

#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"
#include "bindings/c/planning.h"
#include "core/generate/serve_engine.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

Json part_json(const PlanReport::Part& part) {
  Json out = {{"name", part.name}, {"kind", part.kind}};
  Json& weights = out["weights"] = Json::array();
  for (const PlanReport::Weight& one : part.weights)
    weights.push_back({{"name", one.name},
                       {"node", one.node},
                       {"type", one.type},
                       {"cut", one.cut},
                       {"dims", one.dims},
                       {"parts", one.parts},
                       {"bytes", one.bytes},
                       {"rank_bytes", one.rank_bytes},
                       {"copy", one.copy},
                       {"shared", one.shared},
                       {"whole", one.whole}});
  Json& collectives = out["collectives"] = Json::array();
  for (const PlanReport::Moved& one : part.moved)
    collectives.push_back({{"kind", one.kind},
                           {"what", one.what},
                           {"for", one.for_node},
                           {"held", one.held},
                           {"axes", one.axes},
                           {"bytes", one.bytes},
                           {"after", one.after}});
  Json& choices = out["choices"] = Json::array();
  for (const PlanReport::Choice& one : part.choices) {
    Json ways = Json::array();
    for (const PlanReport::Choice::Way& way : one.ways)
      ways.push_back({{"cut", way.cut}, {"bytes", way.bytes}, {"owed", way.owed}, {"chosen", way.chosen}});
    choices.push_back({{"node", one.node}, {"ways", std::move(ways)}, {"why", one.why}});
  }
  return out;
}

Json totals(const PlanReport& report) {
  Json counts = Json::object();
  double moved = 0;
  for (const PlanReport::Part& part : report.parts)
    for (const PlanReport::Moved& one : part.moved) {
      counts[one.kind] = counts.value(one.kind, 0) + 1;
      moved += one.bytes;
    }
  Json out = Json::object();
  auto add = [&](const std::string& name, int64_t whole, int64_t rank) {
    out[name] = whole;
    out["rank_" + name] = rank;
    out["all_ranks_" + name] = rank * report.ranks;
  };
  add("weight_bytes", report.held.weights, report.held.rank_weights);
  add("cache_bytes_per_token", report.held.token_cache, report.held.rank_token_cache);
  add("state_bytes_per_sequence", report.held.sequence_states, report.held.rank_sequence_states);
  out["collectives"] = std::move(counts);
  out["bytes_per_token"] = moved;
  out["estimate"] = {
      {"reading_s", report.price.reading}, {"moving_s", report.price.moving}, {"waiting_s", report.price.waiting}};
  return out;
}

Json report_json(const PlanReport& report) {
  Json out = {{"mesh", report.mesh}, {"ranks", report.ranks}, {"seeds", report.seeds}, {"totals", totals(report)}};
  Json& parts = out["parts"] = Json::array();
  for (const PlanReport::Part& part : report.parts) parts.push_back(part_json(part));
  out["priced_at"] = {{"tokens", report.typical_tokens}, {"rows", report.typical_rows}};
  out["unruled"] = report.unruled;
  return out;
}

/// Of a device: the ops of its program that have no kernel there, by name, and how many nodes have each.
Json islands(ModelObject& model, const CompileOptions& options, const Settings& settings) {
  Json out = Json::object();
  if (options.device == DeviceKind::host) return out;
  const OpenedModel& opened = model.opened();
  const RaggedModel compiled = compile_rank(opened.imported.graph, options, engine_options(settings, opened.config));
  for (const Instruction& one : compiled.program->instructions)
    if (one.kernel && one.kernel->device != options.device) out[one.kernel->op] = out.value(one.kernel->op, 0) + 1;
  return out;
}

std::string model_plan(ModelObject& model, const Settings& settings) {
  const CompileOptions options = generator_compile_options(model, settings);
  options.mesh.require_axes({"data", "tensor"}, "generation");  // stages of a trainer: plait_model_plan_training
  Graph raised = raised_decoder(model, options);
  Json out = report_json(report_plan(std::move(raised), options));
  out["islands"] = islands(model, options, settings);
  return out.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_model_plan(plait_model* model, plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    ModelObject& of_model = *object_of<ModelObject>(model);
    const ModelObject::Work work(of_model);
    return text_tensor(model_plan(of_model, with_chosen_plan(of_model, settings_of(options, for_generator), nullptr,
                                                             WorldObject::Kind::generator, work.progress())));
  });
}
