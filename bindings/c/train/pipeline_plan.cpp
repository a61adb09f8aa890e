#include "bindings/c/train/pipeline_plan.h"

#include <algorithm>
#include <map>

#include "core/base/text.h"
#include "core/schedule/timeline.h"
#include "core/ranks/stage_sections.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<StageSection>& sections_of(const TrainingModel& model) {
  const auto found = model.sections.find(TrainingProgram::accumulate);
  return found != model.sections.end() ? found->second : model.sections.at(TrainingProgram::evaluate);
}

/// Of an output of a program, at the bounds of its symbols.
int64_t output_bytes(const Program& program, int32_t output) {
  std::vector<int64_t> bounds;
  for (SymbolId id = 0; id < program.symbols.size(); ++id) bounds.push_back(program.symbols[id].bound);
  const Buffer& buffer = program.buffers[static_cast<size_t>(program.outputs[static_cast<size_t>(output)])];
  int64_t elements = 1;
  for (const Dim& dim : buffer.dims) elements *= dim.evaluate(bounds);
  return packed_bytes(elements, dtype_bits(buffer.dtype));
}

/// What the sections of a stage give other stages, of one micro-batch and rank.
Json crossings(int32_t stage, const std::vector<PipelineRankPlan>& ranks) {
  Json out = Json::array();
  for (const PipelineRankPlan& rank : ranks) {
    for (const StageSection& section : sections_of(*rank.model)) {
      if (section.stage != stage || section.gives.empty()) continue;
      for (const StageMessage& message : section.gives) {
        int64_t bytes = 0;
        for (int32_t output : message.values) bytes += output_bytes(*section.program, output);
        out.push_back({{"after", cat(stage, action_letter(section.kind))},
                       {"to", message.stage},
                       {"values", message.values.size()},
                       {"bytes", bytes}});
      }
    }
    if (!out.empty()) break;  // all seats have the same sections
  }
  return out;
}

Json stages_json(const Schedule& schedule, const std::vector<PipelineRankPlan>& ranks, const ScheduleFacts& facts) {
  const TrainingModel& model = *ranks.front().model;
  std::map<std::string, int64_t> elements;
  for (const TrainedParameter& parameter : model.parameters) elements[parameter.key] = parameter.shape.elements();
  Json out = Json::array();
  for (size_t stage = 0; stage < model.cut.size(); ++stage) {
    const StageCut& cut = model.cut[stage];
    int64_t trained = 0;
    for (const std::string& key : cut.parameters) trained += elements.at(key);
    out.push_back({{"stage", stage},
                   {"layers", cut.layers},
                   {"seats", schedule.seats[stage]},
                   {"flops", cut.work},
                   {"weight_bytes", static_cast<int64_t>(cut.bytes)},
                   {"trained_parameters", trained},
                   {"versions", facts.versions.empty() ? 1 : facts.versions[stage]},
                   {"gives", crossings(static_cast<int32_t>(stage), ranks)}});
  }
  return out;
}

int32_t sets_of(const LivePeaks& peaks, SlotPool pool) {
  switch (pool) {
    case SlotPool::action: return 1;
    case SlotPool::forward_to_input: return peaks.forward_to_input;
    case SlotPool::forward_to_weight: return peaks.forward_to_weight;
    case SlotPool::input_to_weight: return peaks.input_to_weight;
  }
  return 0;
}

/// Sets and bytes by pool, over the stages of a rank.
Json slots_json(int32_t coordinate, const Schedule& schedule, const TrainingModel& model, const ScheduleFacts& facts) {
  constexpr std::pair<SlotPool, const char*> pools[] = {{SlotPool::action, "action"},
                                                        {SlotPool::forward_to_input, "forward_to_input"},
                                                        {SlotPool::forward_to_weight, "forward_to_weight"},
                                                        {SlotPool::input_to_weight, "input_to_weight"}};
  Json out = Json::object();
  for (const auto& [pool, name] : pools) {
    int64_t sets = 0, bytes = 0;
    for (size_t stage = 0; stage < schedule.seats.size(); ++stage) {
      const std::vector<int32_t>& seats = schedule.seats[stage];
      const auto seat = std::find(seats.begin(), seats.end(), coordinate);
      const auto& sections = sections_of(model);
      const auto section = std::find_if(sections.begin(), sections.end(), [&](const StageSection& one) {
        return one.stage == static_cast<int32_t>(stage);
      });
      if (seat == seats.end() || section == sections.end()) continue;
      const int64_t one = planned_slot_bytes(*section->program, pool);
      const int32_t count = one ? sets_of(facts.seats[stage][static_cast<size_t>(seat - seats.begin())], pool) : 0;
      sets += count;
      bytes += count * one;
    }
    out[name] = {{"sets", sets}, {"bytes", bytes}};
  }
  return out;
}

Json ranks_json(const Schedule& schedule, const std::vector<PipelineRankPlan>& ranks, const ScheduleFacts& facts,
                const Timeline& timeline) {
  Json out = Json::array();
  for (size_t k = 0; k < ranks.size(); ++k) {
    const auto coordinate = static_cast<int32_t>(k);
    const PipelineBytes& bytes = ranks[k].bytes;
    Json stages = Json::array();
    int64_t versions = 0;  // older than the newest
    for (size_t stage = 0; stage < schedule.seats.size(); ++stage) {
      const std::vector<int32_t>& seats = schedule.seats[stage];
      if (std::find(seats.begin(), seats.end(), coordinate) == seats.end()) continue;
      stages.push_back(stage);
      if (!facts.versions.empty()) versions += (facts.versions[stage] - 1) * bytes.trained[stage];
    }
    Json slots = slots_json(coordinate, schedule, *ranks[k].model, facts);
    int64_t in_slots = 0;
    for (const auto& [name, pool] : slots.items()) in_slots += pool.at("bytes").get<int64_t>();
    out.push_back({{"pipeline", coordinate},
                   {"stages", std::move(stages)},
                   {"held_bytes", bytes.held},
                   {"arena_bytes", bytes.arena},
                   {"slots", std::move(slots)},
                   {"slot_bytes", in_slots},
                   {"version_bytes", versions},
                   {"rank_bytes", bytes.held + bytes.arena + in_slots + versions},
                   {"busy", timeline.ranks[k].busy_s / timeline.makespan_s}});
  }
  return out;
}

/// Time as work: a stage of average size takes F 1, B 2, I 1, W 1.
Timeline timeline_of(const Pipeline::Plan& plan, const TrainingModel& model) {
  double work = 0;
  for (const StageCut& stage : model.cut) work += stage.work;
  const double average = work / static_cast<double>(model.cut.size());
  TimelineOptions options;
  options.places = plan.places;
  options.edges = model.edges;
  options.cost = [&](const Action& action) {
    if (action.kind == Action::Kind::update) return 0.0;
    const double forward = average > 0 ? model.cut[static_cast<size_t>(action.stage)].work / average : 1;
    return action.kind == Action::Kind::backward ? 2 * forward : forward;
  };
  return simulate(plan.schedule, options);
}

}  // namespace

Json pipeline_json(const std::string& schedule, const Pipeline::Plan& plan, int64_t steps,
                   const std::vector<PipelineRankPlan>& ranks) {
  const Timeline timeline = timeline_of(plan, *ranks.front().model);
  return {{"schedule", schedule},
          {"asynchronous", plan.facts.asynchronous},
          {"steps", steps},
          {"micro_batches", plan.schedule.micro_batches / steps},
          {"places", plan.places},
          {"stages", stages_json(plan.schedule, ranks, plan.facts)},
          {"ranks", ranks_json(plan.schedule, ranks, plan.facts, timeline)},
          {"bubble", timeline.bubble()},
          {"timeline", split(trimmed(timeline_text(timeline)), '\n')},
          {"picture", timeline_svg(timeline)}};
}

}  // namespace plait::c_api
