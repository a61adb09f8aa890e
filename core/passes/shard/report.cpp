#include "core/passes/shard/report.h"

#include <algorithm>
#include <set>

#include "core/base/text.h"
#include "core/passes/shard/layers.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/shard/price.h"

namespace plait {
namespace {

class Reporter {
 public:
  Reporter(const Graph& graph, const CompileOptions& options, AxisList sequence)
      : graph_(graph),
        options_(options),
        mesh_(options.mesh),
        sequence_(std::move(sequence)),
        layers_(layers_of(graph, options.ops)) {}

  PlanReport run() {
    const ShardSeeds seeds = seeds_for(graph_, options_);
    Graph local = graph_;
    const ShardPlan plan = shard(local, options_.ops, mesh_, seeds, {.sequence = sequence_});
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
    out_.held = held_bytes(graph_, plan, mesh_);
    out_.price = price_of(graph_, plan, mesh_);
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

  std::string name_of(ValueId id, int32_t reader) const {
    const Value& value = graph_.value(id);
    const Constant& constant = *value.constant;
    if (!constant.initializer.empty()) return constant.initializer;
    if (!constant.parts.empty() && !constant.parts[0].initializer.empty())
      return cat(constant.parts[0].initializer, " and ", constant.parts.size() - 1, " more");
    return value.name.empty() ? cat("computed for ", describe(graph_, graph_.nodes[static_cast<size_t>(reader)]))
                              : value.name;
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
        if (dtype == DType::i64 || dtype == DType::i32 || dtype == DType::boolean) continue;  // sizes, indices
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
    const std::string cut = text(sharding, mesh_), key = memory_key(constant);
    const int64_t bytes = token_bytes(type);
    const bool shared = !key.empty() && !seen_.insert(cat(key, cut)).second;
    if (product(*type.dims).constant() == 1) return;  // a scalar
    const Node& node = graph_.nodes[static_cast<size_t>(reader)];
    PlanReport::Weight out;
    out.name = name_of(id, reader);
    out.node = node.name.empty() ? node.op : node.name;
    out.type = text(type, graph_.symbols);
    out.cut = cut;
    out.bytes = bytes;
    out.rank_bytes = bytes / mesh_.blocks(sharding.axes());
    out.copy = copy;
    out.shared = shared;
    out.whole = whole;
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      out.dims.push_back((*type.dims)[d].constant());
      out.parts.push_back(mesh_.blocks(sharding.dims[d]));
    }
    readers_[part_of(reader)].push_back(reader);
    out_.parts[part_of(reader)].weights.push_back(std::move(out));
  }

  void add_moved(const PlannedCollective& one) {
    const std::vector<int32_t>& readers = readers_[part_of(one.node)];
    const auto after =
        std::count_if(readers.begin(), readers.end(), [&](int32_t reader) { return reader <= one.node; });
    double bytes = moved_bytes(one.step, static_cast<double>(token_bytes(one.held)), mesh_);
    // If tokens are sharded, a symbol counts one rank's tokens.
    const auto tokens = graph_.symbols.find("t");
    if (tokens && one.held.dims && std::any_of(one.held.dims->begin(), one.held.dims->end(), [&](const Dim& dim) {
          const auto multiple = dim.single_multiple();
          return multiple && multiple->symbol == *tokens;
        }))
      bytes /= static_cast<double>(mesh_.blocks(sequence_));
    out_.parts[part_of(one.node)].moved.push_back({std::string(kind_name(one.step.kind)), one.what, one.for_node,
                                                   text(one.held, graph_.symbols), mesh_.text(one.step.axes), bytes,
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
    double others = HUGE_VAL;  // of the cheapest alternative
    int owed = 0;
    for (const PlannedChoice::Candidate& way : one.candidates)
      if (!way.chosen && std::pair(way.bytes, way.owed) < std::pair(others, owed))
        others = way.bytes, owed = way.owed;
    choice.why = chosen->bytes < others   ? "moves the fewest bytes"
                 : chosen->bytes > others ? "leaves weights where the seeds have them"
                 : chosen->owed < owed    ? "moves as few bytes as any, and pays at once what others may read"
                                          : "moves as few bytes as any, and shares the work among most ranks";
    out_.parts[part_of(one.node)].choices.push_back(std::move(choice));
  }

  void find_kinds() {
    std::vector<std::vector<std::string>> kinds;
    for (PlanReport::Part& part : out_.parts) {
      std::vector<std::string> plan;
      // Vectors follow the matrices; angles shared by several layers are in the first.
      for (const PlanReport::Weight& one : part.weights)
        if (std::count_if(one.dims.begin(), one.dims.end(), [](int64_t size) { return size > 1; }) > 1)
          plan.push_back(cat(one.type, one.cut, one.copy, one.shared));
      for (const PlanReport::Moved& one : part.moved) plan.push_back(cat(one.kind, one.axes, one.bytes));
      auto known = std::find(kinds.begin(), kinds.end(), plan);
      part.kind = static_cast<int>(known - kinds.begin());
      if (known == kinds.end()) kinds.push_back(std::move(plan));
    }
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const Mesh& mesh_;
  const AxisList sequence_;
  const GraphLayers layers_;
  std::set<std::string> seen_;                 ///< already in memory
  std::vector<std::vector<int32_t>> readers_;  ///< by part: the nodes that read its weights
  PlanReport out_;
};

}  // namespace

PlanReport report_plan(Graph raised, const CompileOptions& options) {
  set_typical_step(raised);
  AxisList sequence = sequence_axes(raised, options.mesh, options.seeds);
  return Reporter(raised, options, std::move(sequence)).run();
}

}  // namespace plait
