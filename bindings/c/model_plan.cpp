// The plan of a model on a mesh: the report of pass `shard` as JSON.
#include "core/passes/shard/report.h"

#include <nlohmann/json.hpp>

#include "bindings/c/objects.h"
#include "bindings/c/planning.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
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

/// Of a device: the ops of its programs that have no kernel there, by name, and how many nodes have each.
Json islands(const std::vector<RaggedModel>& stages, DeviceKind device) {
  Json out = Json::object();
  for (const RaggedModel& stage : stages)
    for (const Instruction& one : stage.program->instructions)
      if (one.kernel && one.kernel->device != device) out[one.kernel->op] = out.value(one.kernel->op, 0) + 1;
  return out;
}

/// What the first rank of a pipeline coordinate holds, and gives the next for each token of a step.
Json stage_json(const RaggedModel& model, int64_t page_tokens) {
  const Program& program = *model.program;
  const std::vector<int64_t> none(static_cast<size_t>(program.symbols.size()));
  int64_t weights = 0, cache = 0, states = 0;
  for (const StoreEntry& entry : program.entries) {
    if (const auto row = model.rows.find(entry.key); row != model.rows.end()) {
      const int64_t bytes = packed_bytes(row->second.part.elements(), dtype_bits(row->second.dtype));
      if (store_keys::is_cache_states(entry.key)) states += bytes;
      else if (store_keys::is_cache(entry.key)) cache += bytes;
      continue;
    }
    int64_t elements = 1;
    for (const Dim& dim : entry.dims) elements *= dim.evaluate(none);
    weights += packed_bytes(elements, dtype_bits(entry.dtype));
  }
  const std::vector<int64_t> token(static_cast<size_t>(program.symbols.size()), 1);
  int64_t gives = 0;
  for (const StageMessage& message : model.section.gives)
    for (const int32_t value : message.values) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(program.outputs[static_cast<size_t>(value)])];
      int64_t elements = 1;
      for (const Dim& dim : buffer.dims) elements *= dim.evaluate(token);
      gives += packed_bytes(elements, dtype_bits(buffer.dtype)) / model.token_multiple;
    }
  return {{"stage", model.section.stage},
          {"layers", model.cut[static_cast<size_t>(model.section.stage)].layers},
          {"rank_weight_bytes", weights},
          {"rank_cache_bytes_per_token", cache / page_tokens},
          {"rank_state_bytes_per_sequence", states},
          {"rank_gives_bytes_per_token", gives}};
}

/// Without pipeline ranks.
Mesh within_stage(const Mesh& mesh) {
  std::vector<std::string> axes;
  for (const Mesh::Axis& axis : mesh.axes())
    if (axis.name != "pipeline") axes.push_back(cat(axis.name, "=", axis.size));
  return Mesh::parse(join(axes, ","));
}

std::string model_plan(ModelObject& model, const Settings& settings) {
  const CompileOptions options = generator_compile_options(model, settings);
  CompileOptions within = options;
  within.mesh = within_stage(options.mesh);
  Json out = report_json(report_plan(raised_decoder(model, within), within));
  out["mesh"] = options.mesh.text();
  out["ranks"] = options.mesh.ranks();
  const int64_t stages = options.mesh.blocks(options.mesh.parts("pipeline"));
  std::vector<RaggedModel> compiled;
  const OpenedModel& opened = model.opened();
  const EngineOptions engine = engine_options(settings, opened.config);
  for (int64_t stage = 0; stage < stages && (stages > 1 || options.device != DeviceKind::host); ++stage) {
    CompileOptions of_rank = options;
    of_rank.stages = generator_stages(settings, options.mesh);
    of_rank.rank = stage * within.mesh.ranks();
    compiled.push_back(compile_rank(opened.imported.graph, of_rank, engine));
  }
  if (stages > 1) {
    Json& list = out["stages"] = Json::array();
    for (const RaggedModel& one : compiled) list.push_back(stage_json(one, engine.page_tokens));
  }
  out["islands"] = islands(compiled, options.device);
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
