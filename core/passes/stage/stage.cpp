#include "core/passes/stage/stage.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

std::string counted(size_t count, const StageUnits& units) {
  if (!units.layers) return cat(count, " nodes");
  return cat(count - 2, count == 3 ? " layer" : " layers");
}

[[noreturn]] void refuse(std::string what, std::string hint) {
  throw Error(Code::invalid_argument, cat("pipeline stages: ", what), std::move(hint));
}

/// By unit, from how many consecutive units each stage has.
std::vector<int32_t> stages_of(const std::vector<int64_t>& counts) {
  std::vector<int32_t> out;
  for (size_t s = 0; s < counts.size(); ++s)
    out.insert(out.end(), static_cast<size_t>(counts[s]), static_cast<int32_t>(s));
  return out;
}

/// Layers by hand: the first stage also has what comes before the layers, the last what comes after.
std::vector<int32_t> by_hand(const StageUnits& units, const StageOptions& options) {
  const size_t have = units.units.size() - (units.layers ? 2 : 0);
  std::vector<int64_t> counts = options.layers;
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::vector<std::string> words;
  for (int64_t count : counts) words.push_back(cat(count));
  const std::string given = join(words, ",");
  if (counts.size() != static_cast<size_t>(options.count()))
    refuse(cat(quote(given), " cuts ", counts.size(), " stages, the schedule has ", options.count()),
           cat("give ", options.count(), " numbers"));
  if (sum != static_cast<int64_t>(have))
    refuse(cat(quote(given), " has ", sum, units.layers ? " layers" : " nodes", ", the model ", have),
           "the numbers of the stages add up to the model's");
  for (size_t s = 0; s < counts.size(); ++s) {
    const bool holds_end = units.layers && (s == 0 || s + 1 == counts.size());
    if (counts[s] < (holds_end ? 0 : 1))
      refuse(cat(quote(given), " leaves stage ", s, " with ", counts[s], units.layers ? " layers" : " nodes"),
             "only the first and the last stage, which have the embedding and the head, can be without layers");
  }
  if (units.layers) ++counts.front(), ++counts.back();
  return stages_of(counts);
}

/// As the file's annotations have most nodes of a unit.
std::vector<int32_t> by_file(const Graph& graph, const StageUnits& units, const PassContext& context) {
  std::vector<std::map<int32_t, int>> votes(units.units.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (auto found = context.file_stages.find(graph.nodes[i].name);
        found != context.file_stages.end() && units.of_node[i] >= 0)
      ++votes[static_cast<size_t>(units.of_node[i])][found->second];
  std::vector<int32_t> out;
  const int32_t last = context.options.stages.count() - 1;
  for (size_t u = 0; u < votes.size(); ++u) {
    const auto most = std::max_element(votes[u].begin(), votes[u].end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const int32_t before = out.empty() ? 0 : out.back();
    const int32_t stage = most == votes[u].end() ? before : most->first;
    if (stage < before || stage > before + (u > 0) || stage > last)
      refuse(
          cat("the file puts layer ", u, " on stage ", stage, " after stage ", before, ", and there are ", last + 1),
          "stages of a file are numbered in the order of the layers; or cut otherwise (stages)");
    out.push_back(stage);
  }
  if (out.back() != last)
    refuse(cat("the file has ", out.back() + 1, " stages, the schedule ", last + 1), "or cut otherwise (stages)");
  return out;
}

std::vector<int32_t> cut(const Graph& graph, const StageUnits& units, const PassContext& context) {
  const StageOptions& options = context.options.stages;
  const auto stages = static_cast<size_t>(options.count());
  if (units.units.size() < stages)
    refuse(cat(stages, " stages are more than the model's ", counted(units.units.size(), units), " can fill"),
           "choose fewer pipeline ranks, or a schedule with fewer stages a rank");
  if (!context.stage_units.empty()) return stages_of(context.stage_units);
  if (!options.layers.empty()) return by_hand(units, options);
  if (options.from_file) return by_file(graph, units, context);
  std::vector<size_t> seats;
  for (const auto& of : options.seats) seats.push_back(of.size());
  const std::vector<int64_t> counts = balance(units.units, seats);
  if (counts.empty()) {
    const auto joined =
        std::count_if(units.units.begin(), units.units.end(), [](const auto& unit) { return unit.joined; });
    refuse(cat("of the model's ", counted(units.units.size(), units), ", ", joined,
               " share keys and values with the one before, so that ", stages, " stages are too many"),
           "choose fewer pipeline ranks");
  }
  return stages_of(counts);
}

void check_joined(const StageUnits& units, const std::vector<int32_t>& stage_of_unit) {
  for (size_t u = 1; u < stage_of_unit.size(); ++u)
    if (units.units[u].joined && stage_of_unit[u] != stage_of_unit[u - 1])
      refuse(cat("stage ", stage_of_unit[u], " begins at ", units.layers ? "layer " : "node ",
                 u - (units.layers ? 1 : 0),
                 ", which shares keys and values with the one before, or stands after a result"),
             "cut elsewhere (stages)");
}

/// Puts what the cut separates apart.
class Separator {
 public:
  Separator(Graph& graph, PassContext& context) : graph_(graph), context_(context) {
    const StageUnits units = stage_units(graph, context);
    const std::vector<int32_t> stage_of_unit = cut(graph, units, context);
    check_joined(units, stage_of_unit);
    note_cut(units, stage_of_unit);
    maker_stage_.assign(static_cast<size_t>(graph.value_count()), -1);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      Node& node = graph.nodes[i];
      node.stage = units.of_node[i] < 0 ? -1 : stage_of_unit[static_cast<size_t>(units.of_node[i])];
      for (ValueId id : node.outputs)
        if (id != no_value) maker_stage_[static_cast<size_t>(id)] = node.stage;
    }
    producer_ = producers(graph);
    find_states();
  }

  void run() {
    const size_t old = graph_.nodes.size();
    for (size_t i = 0; i < old; ++i) {
      const int32_t stage = graph_.nodes[i].stage;
      if (stage < 0) continue;
      for (size_t k = 0; k < graph_.nodes[i].inputs.size(); ++k) {
        const ValueId id = graph_.nodes[i].inputs[k];
        if (id != no_value) graph_.nodes[i].inputs[k] = at(id, stage, i);
      }
    }
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  void note_cut(const StageUnits& units, const std::vector<int32_t>& stage_of_unit) {
    context_.cut.assign(static_cast<size_t>(context_.options.stages.count()), {});
    for (size_t u = 0; u < stage_of_unit.size(); ++u) {
      StageCut& one = context_.cut[static_cast<size_t>(stage_of_unit[u])];
      const bool end = units.layers && (u == 0 || u + 1 == stage_of_unit.size());  // embedding and head
      one.layers += end ? 0 : 1;
      ++one.units;
      one.work += units.units[u].work;
      one.bytes += units.units[u].bytes;
    }
  }

  /// By value: whether it is made of States and constants only, such as an adapter and what it is merged into.
  void find_states() {
    of_states_.assign(maker_stage_.size(), false);
    for (const Node& node : graph_.nodes) {
      if (node.stage >= 0) continue;
      const bool state = is_state(node) || std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
                           return id != no_value && of_states_[static_cast<size_t>(id)];
                         });
      for (ValueId id : node.outputs)
        if (id != no_value) of_states_[static_cast<size_t>(id)] = state;
    }
  }

  /// The value as stage `stage` reads it.
  ValueId at(ValueId id, int32_t stage, size_t reader) {
    if (static_cast<size_t>(id) >= maker_stage_.size()) return id;  // made here
    const int32_t from = maker_stage_[static_cast<size_t>(id)];
    if (from < 0) return of_states_[static_cast<size_t>(id)] ? own(id, stage) : id;
    if (from == stage) return id;
    if (from > stage)
      refuse(cat(describe(graph_, graph_.nodes[reader]), " on stage ", stage, " reads ", quote(graph_.value(id).name),
                 " of stage ", from),
             "values go from a stage to later ones: cut elsewhere (stages)");
    auto [known, fresh] = crossed_.try_emplace({id, stage}, no_value);
    if (fresh) {
      Attributes attributes;
      attributes.set("from", int64_t{from});
      attributes.set("to", int64_t{stage});
      Node& node = graph_.add_node("plait.Cross", {id}, 1, std::move(attributes));
      node.stage = stage;
      node.name = graph_.nodes[reader].name;
      known->second = node.outputs[0];
      graph_.value(known->second).type = graph_.value(id).type;
    }
    return known->second;
  }

  /// A stage's own copy of what is made of States. The first stage keeps the original.
  ValueId own(ValueId id, int32_t stage) {
    auto [first, fresh] = owner_.try_emplace(id, stage);
    const int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker < 0) return id;
    const auto index = static_cast<size_t>(maker);
    if (fresh) {
      if (is_state(graph_.nodes[index])) graph_.nodes[index].stage = stage;
      for (ValueId input : graph_.nodes[index].inputs)
        if (input != no_value && of_states_[static_cast<size_t>(input)]) own(input, stage);
    }
    if (first->second == stage) return id;
    auto [known, missing] = copies_.try_emplace({id, stage}, no_value);
    if (!missing) return known->second;
    Node copy = graph_.nodes[index];
    if (is_state(copy)) copy.stage = stage;
    for (ValueId& input : copy.inputs)
      if (input != no_value && of_states_[static_cast<size_t>(input)]) input = own(input, stage);
    for (ValueId& output : copy.outputs) {
      if (output == no_value) continue;
      const ValueId made = graph_.add_value("", graph_.value(output).type);
      copies_[{output, stage}] = made;
      for (size_t i = 0, count = context_.adapters.size(); i < count; ++i)
        if (context_.adapters[i].value == output) context_.adapters.push_back({context_.adapters[i].parameter, made});
      output = made;
    }
    graph_.nodes.push_back(std::move(copy));
    return copies_.at({id, stage});
  }

  Graph& graph_;
  PassContext& context_;
  std::vector<int32_t> maker_stage_;  ///< by value; -1: an input, a constant, or of every stage
  std::vector<bool> of_states_;       ///< by value
  std::vector<int32_t> producer_;
  std::map<std::pair<ValueId, int32_t>, ValueId> crossed_, copies_;  ///< by value and reading stage
  std::map<ValueId, int32_t> owner_;                                 ///< the first stage that reads it
};

}  // namespace

void read_cut(const std::string& text, StageOptions& out) {
  out.from_file = text == "file";
  if (out.from_file || text == "auto") return;
  for (const std::string& word : split(text, ',')) {
    int64_t count = 0;
    if (!parse_int(word, count) || count < 0)
      throw Error(Code::invalid_argument,
                  cat("stages ", quote(text), ": ", quote(word), " is not a number of layers"),
                  "stages is auto, file, or the layers of each stage, such as 9,9");
    out.layers.push_back(count);
  }
}

void stage(Graph& graph, PassContext& context) {
  if (context.options.stages.count() > 1) Separator(graph, context).run();
}

}  // namespace plait
