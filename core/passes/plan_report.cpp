#include "core/passes/plan_report.h"

#include <algorithm>
#include <set>

#include "core/base/text.h"
#include "core/passes/plan_layers.h"

namespace plait {
namespace {

class Reporter {
 public:
  Reporter(const Graph& graph, const CompileOptions& options)
      : graph_(graph), options_(options), mesh_(options.mesh), layers_(layers_of(graph, options.ops)) {
    ones_.assign(static_cast<size_t>(graph.symbols.size()), 1);
  }

  PlanReport run() {
    const ShardSeeds seeds = seeds_of(graph_, options_.ops, mesh_, options_.seeds);
    Graph local = graph_;
    const ShardPlan plan = shard(local, options_.ops, mesh_, 0, seeds);
    out_.mesh = mesh_.text();
    out_.ranks = mesh_.ranks();
    out_.seeds = options_.seeds.empty() ? std::vector<std::string>{"tensor"} : options_.seeds;
    out_.unruled = plan.unruled;
    for (const auto& [name, typical] : {std::pair("t", &out_.typical_tokens), std::pair("r", &out_.typical_rows)})
      if (auto id = graph_.symbols.find(name)) *typical = graph_.symbols[*id].typical;
    name_parts();
    add_weights(plan);
    for (const PlannedCollective& one : plan.collectives) add_moved(one);
    for (const PlannedChoice& one : plan.choices) add_choice(one);
    add_states(plan);
    find_kinds();
    return std::move(out_);
  }

 private:
  void name_parts() {
    out_.parts.resize(static_cast<size_t>(layers_.count) + 2);
    out_.parts.front().name = "before";
    for (int i = 0; i < layers_.count; ++i) out_.parts[static_cast<size_t>(i) + 1].name = cat("layer ", i);
    out_.parts.back().name = "after";
    readers_.resize(out_.parts.size());
  }
  size_t part_of(int32_t node) const {
    return node < 0 ? 0 : static_cast<size_t>(layers_.of_node[static_cast<size_t>(node)] + 1);
  }

  /// Bytes at one token of one sequence.
  int64_t bytes_of(const Type& type) const {
    return (product(*type.dims).evaluate(ones_) * dtype_bits(type.dtype) + 7) / 8;
  }
  std::string name_of(ValueId id) const {
    const Value& value = graph_.value(id);
    const Constant& constant = *value.constant;
    if (!constant.initializer.empty()) return constant.initializer;
    if (!constant.parts.empty() && !constant.parts[0].initializer.empty())
      return cat(constant.parts[0].initializer, " and ", constant.parts.size() - 1, " more");
    return value.name;
  }

  /// In the order in which nodes read them.
  void add_weights(const ShardPlan& plan) {
    const auto why = why_whole(graph_, options_.ops, mesh_, mesh_.parts("tensor"), plan.weights);
    std::vector<bool> seen(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (ValueId id : graph_.nodes[i].inputs) {
        if (id == no_value || seen[static_cast<size_t>(id)] || !plan.weights.contains(id)) continue;
        seen[static_cast<size_t>(id)] = true;
        const DType dtype = graph_.value(id).type.dtype;
        if (dtype == DType::i64 || dtype == DType::i32 || dtype == DType::boolean) continue;  // sizes, places
        auto reason = why.find(id);
        auto add = [&](const Sharding& sharding, bool copy) {
          add_weight(static_cast<int32_t>(i), id, sharding, copy, reason == why.end() ? "" : reason->second);
        };
        add(plan.weights.at(id), false);
        for (const auto& [copy, sharding] : plan.copies)
          if (copy == id) add(sharding, true);
      }
  }
  void add_weight(int32_t reader, ValueId id, const Sharding& sharding, bool copy, const std::string& whole) {
    const Type& type = graph_.value(id).type;
    const Constant& constant = *graph_.value(id).constant;
    const std::string cut = text(sharding, mesh_), tensor = cat(constant.initializer, "|", text(constant.steps));
    const int64_t bytes = bytes_of(type), held = bytes / mesh_.blocks(sharding.axes());
    // Weights of one tensor and one recipe are one in memory, as far as they are cut alike.
    const bool named = !constant.initializer.empty();
    if (!(named && !tensors_.insert(tensor).second) && !copy) out_.weight_bytes += bytes;
    const bool shared = named && !tensors_.insert(cat(tensor, cut)).second;
    if (!shared) out_.rank_weight_bytes += held;
    if (product(*type.dims).constant() == 1) return;  // a number is no weight
    readers_[part_of(reader)].push_back(reader);
    out_.parts[part_of(reader)].weights.push_back(
        {name_of(id), text(type, graph_.symbols), cut, bytes, held, copy, shared, whole});
  }

  void add_moved(const PlannedCollective& one) {
    const std::vector<int32_t>& readers = readers_[part_of(one.node)];
    const auto after =
        std::count_if(readers.begin(), readers.end(), [&](int32_t reader) { return reader <= one.node; });
    out_.parts[part_of(one.node)].moved.push_back(
        {std::string(kind_name(one.step.kind)), one.what, one.for_node, text(one.held, graph_.symbols),
         mesh_.text(one.step.axes), moved_bytes(one.step, static_cast<double>(bytes_of(one.held)), mesh_),
         static_cast<int>(after)});
  }

  void add_choice(const PlannedChoice& one) {
    PlanReport::Choice choice{describe(graph_, graph_.nodes[static_cast<size_t>(one.node)]), {}, {}};
    const PlannedChoice::Candidate* chosen = nullptr;
    for (const PlannedChoice::Candidate& way : one.candidates) {
      std::vector<std::string> cut;
      for (const auto& [factor, axes] : way.cut) cut.push_back(cat(factor, ": ", mesh_.text(axes)));
      choice.ways.push_back({cut.empty() ? "-" : join(cut, ", "), way.bytes, way.owed, way.chosen});
      if (way.chosen) chosen = &way;
    }
    double others = HUGE_VAL;  // of the cheapest that was not taken
    int owed = 0;
    for (const PlannedChoice::Candidate& way : one.candidates)
      if (!way.chosen && std::pair(way.bytes, way.owed) < std::pair(others, owed))
        others = way.bytes, owed = way.owed;
    choice.why = chosen->bytes < others ? "moves the fewest bytes"
                 : chosen->owed < owed  ? "moves as few bytes as any, and pays at once what others may read"
                                        : "moves as few bytes as any, and shares the work among most ranks";
    out_.parts[part_of(one.node)].choices.push_back(std::move(choice));
  }

  void add_states(const ShardPlan& plan) {
    const auto per_token = graph_.symbols.find("c");
    for (const auto& [id, sharding] : plan.states) {
      const std::vector<SymbolId> symbols = product(*graph_.value(id).type.dims).symbols();
      const bool pages = per_token && std::find(symbols.begin(), symbols.end(), *per_token) != symbols.end();
      (pages ? out_.token_cache_bytes : out_.sequence_state_bytes) += bytes_of(graph_.value(id).type);
      (pages ? out_.rank_token_cache_bytes : out_.rank_sequence_state_bytes) +=
          bytes_of(graph_.value(id).type) / mesh_.blocks(sharding.axes());
    }
  }

  void find_kinds() {
    std::vector<std::vector<std::string>> kinds;
    for (PlanReport::Part& part : out_.parts) {
      std::vector<std::string> plan;
      // Vectors follow the matrices; and angles that several layers share stand in the first of them.
      for (const PlanReport::Weight& one : part.weights)
        if (one.type.find(',') != std::string::npos) plan.push_back(cat(one.type, one.cut, one.copy, one.shared));
      for (const PlanReport::Moved& one : part.moved) plan.push_back(cat(one.kind, one.axes, one.bytes));
      auto known = std::find(kinds.begin(), kinds.end(), plan);
      part.kind = static_cast<int>(known - kinds.begin());
      if (known == kinds.end()) kinds.push_back(std::move(plan));
    }
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const Mesh& mesh_;
  const GraphLayers layers_;
  std::vector<int64_t> ones_;
  std::set<std::string> tensors_;              ///< that were counted, of the file and as they are held
  std::vector<std::vector<int32_t>> readers_;  ///< by part: the nodes that read its weights
  PlanReport out_;
};

}  // namespace

PlanReport report_plan(Graph raised, const CompileOptions& options) {
  set_typical_step(raised);
  return Reporter(raised, options).run();
}

}  // namespace plait
