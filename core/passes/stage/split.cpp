#include "core/passes/stage/split.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/mesh/placement.h"

namespace plait {
namespace {

using Kind = Action::Kind;

/// Parts of a stage, in the order in which they run.
enum Part : int32_t { forward, input_gradient, weight_gradient };

class Splitter {
 public:
  Splitter(const Graph& graph, const OpSet& ops, const SplitOptions& options)
      : graph_(graph), ops_(ops), options_(options), producer_(producers(graph)) {
    find_everywhere();
    find_stages();
    find_parts();
  }

  std::vector<StageGraphs> run() {
    std::vector<StageGraphs> out;
    for (int32_t stage = 0; stage < options_.stages; ++stage) out.push_back(of_stage(stage));
    return out;
  }

 private:
  struct Reads {
    Part born = forward;
    std::set<Part> by;  ///< sections that read the slot
  };
  using SlotReads = std::map<ValueId, Reads>;

  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  int32_t maker(ValueId id) const { return id == no_value ? -1 : producer_[at(id)]; }
  const Node& node(int32_t index) const { return graph_.nodes[static_cast<size_t>(index)]; }
  static bool is_cross(const Node& node) { return node.op == "plait.Cross"; }
  size_t updates(const Node& node) const {
    const OpSchema* schema = ops_.find(node.op);
    return schema ? static_cast<size_t>(schema->updates) : 0;
  }
  bool is_view(const Node& node) const {
    const OpSchema* schema = ops_.find(node.op);
    return schema && schema->view && !is_cross(node);
  }

  // ---- what belongs where ----

  /// What each section computes itself where it reads it: constants, States, and what is made of these, or of inputs by nodes of
  /// no stage of their own.
  void find_everywhere() {
    everywhere_.assign(graph_.nodes.size(), false);
    of_weights_.assign(at(graph_.value_count()), true);
    for (ValueId id : graph_.inputs) of_weights_[at(id)] = false;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& one = graph_.nodes[i];
      bool all = !is_cross(one) && !updates(one), weights = all;
      for (ValueId id : one.inputs) {
        if (id == no_value) continue;
        all = all && (maker(id) < 0 || everywhere_[static_cast<size_t>(maker(id))]);
        weights = weights && of_weights_[at(id)];
      }
      everywhere_[i] = all && (weights || one.stage < 0);
      for (ValueId id : one.outputs)
        if (id != no_value) of_weights_[at(id)] = weights;
    }
  }
  bool is_everywhere(ValueId id) const {
    return id == no_value || maker(id) < 0 || everywhere_[static_cast<size_t>(maker(id))];
  }
  bool is_sum(ValueId id) const { return maker(id) >= 0 && updates(node(maker(id))) > 0; }

  /// A node runs on the stage that wants what it makes: sums are with their State, results on the last stage.
  void find_stages() {
    stage_.assign(graph_.nodes.size(), -1);
    std::vector<int32_t> wanted(at(graph_.value_count()), -1);
    const auto want = [&](ValueId id, int32_t stage) {
      if (is_everywhere(id)) return;
      int32_t& of = wanted[at(id)];
      if (of >= 0 && of != stage)
        throw Error(Code::internal, cat(describe(graph_, node(maker(id))), " is wanted on the stages ", of, " and ", stage));
      of = stage;
    };
    for (ValueId id : graph_.outputs)
      if (id != no_value) want(id, is_sum(id) ? node(maker(node(maker(id)).inputs[0])).stage : options_.stages - 1);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& one = graph_.nodes[i];
      if (everywhere_[i]) continue;
      int32_t stage = -1;
      for (ValueId id : one.outputs)
        if (id != no_value && wanted[at(id)] >= 0) stage = wanted[at(id)];
      if (stage < 0) continue;  // nothing needs it
      if (is_cross(one)) {
        if (stage != one.attributes.integer("to"))
          throw Error(Code::internal, cat(describe(graph_, one), " is read on stage ", stage));
        crosses_.push_back(static_cast<int32_t>(i));
        want(one.inputs[0], static_cast<int32_t>(one.attributes.integer("from")));
        continue;
      }
      stage_[i] = stage;
      for (ValueId id : one.outputs) want(id, stage);
      for (ValueId id : one.inputs) want(id, stage);
    }
    std::reverse(crosses_.begin(), crosses_.end());
  }

  bool is_backward(const Node& one) const {
    return !options_.backward.empty() &&
           (one.recomputed || std::any_of(one.outputs.begin(), one.outputs.end(), [&](ValueId id) {
              return id != no_value && options_.backward[at(id)];
            }));
  }

  void find_parts() {
    part_.assign(graph_.nodes.size(), forward);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (is_backward(graph_.nodes[i])) part_[i] = input_gradient;
    if (!options_.backward.empty() && options_.halves) find_weight_gradients();
  }

  /// What a value of the backward pass leads to.
  struct Leads {
    std::set<int32_t> sums;  ///< at most two, since more make no difference
    bool elsewhere = false;  ///< to another stage, or to a result
  };

  void find_weight_gradients() {
    std::vector<Leads> leads(at(graph_.value_count()));
    for (ValueId id : graph_.outputs)
      if (id != no_value && !is_sum(id)) leads[at(id)].elsewhere = true;
    std::vector<bool> one_sum(graph_.nodes.size());
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& one = graph_.nodes[i];
      Leads of_node;
      for (ValueId id : one.outputs) {
        if (id == no_value) continue;
        of_node.elsewhere = of_node.elsewhere || leads[at(id)].elsewhere;
        of_node.sums.insert(leads[at(id)].sums.begin(), leads[at(id)].sums.end());
      }
      if (is_cross(one)) of_node.elsewhere = true;
      if (updates(one)) of_node.sums.insert(static_cast<int32_t>(i));
      while (of_node.sums.size() > 2) of_node.sums.erase(std::prev(of_node.sums.end()));
      one_sum[i] = part_[i] == input_gradient && !of_node.elsewhere && of_node.sums.size() == 1;
      for (ValueId id : one.inputs) {
        if (id == no_value) continue;
        leads[at(id)].elsewhere = leads[at(id)].elsewhere || of_node.elsewhere;
        leads[at(id)].sums.insert(of_node.sums.begin(), of_node.sums.end());
      }
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& one = graph_.nodes[i];
      const bool follows = std::any_of(one.inputs.begin(), one.inputs.end(), [&](ValueId id) {
        return maker(id) >= 0 && part_[static_cast<size_t>(maker(id))] == weight_gradient;
      });
      if (one_sum[i] && (follows || multiplies_activations(one))) part_[i] = weight_gradient;
    }
  }

  /// Whether it sums products of two values that both depend on tokens: what is left of the work once gradients have passed.
  bool multiplies_activations(const Node& one) const {
    const std::optional<NodeRule> rule = rule_of(graph_, ops_, one);
    if (!rule) return false;
    for (const FactorUse& use : rule->uses) {
      if (!use.contracted()) continue;
      int carriers = 0;
      for (size_t k = 0; k < one.inputs.size(); ++k) {
        if (one.inputs[k] == no_value || of_weights_[at(one.inputs[k])]) continue;
        for (const RuleDim& dim : rule->rule.operands[k].dims)
          if (std::any_of(dim.factors.begin(), dim.factors.end(),
                          [&](const Factor& factor) { return factor.name == use.factor.name; })) {
            ++carriers;
            break;
          }
      }
      if (carriers > 1) return true;
    }
    return false;
  }

  // ---- one stage ----

  Part part_of_cross(const Node& cross) const { return is_backward(cross) ? input_gradient : forward; }
  bool takes(const Node& one, int32_t stage) const { return is_cross(one) && one.attributes.integer("to") == stage; }
  bool gives(const Node& one, int32_t stage) const { return is_cross(one) && one.attributes.integer("from") == stage; }

  StageGraphs of_stage(int32_t stage) {
    StageGraphs out;
    out.stage = stage;
    const bool backward = !options_.backward.empty();
    const bool halves = backward && options_.halves, whole = backward && options_.whole;
    SlotReads reads;
    std::vector<std::pair<Kind, std::vector<Part>>> kinds{{Kind::forward, {forward}}};
    if (whole) kinds.push_back({Kind::backward, {input_gradient, weight_gradient}});
    if (halves) kinds.push_back({Kind::input_gradient, {input_gradient}});
    if (halves) kinds.push_back({Kind::weight_gradient, {weight_gradient}});
    std::vector<std::vector<bool>> nodes;
    for (const auto& [kind, parts] : kinds) nodes.push_back(nodes_of(stage, parts, reads));
    std::map<ValueId, int32_t> numbers;
    for (const auto& [id, read] : reads) {
      numbers.emplace(id, static_cast<int32_t>(out.slots.size()));
      out.slots.push_back(slot(id, read));
    }
    for (size_t k = 0; k < kinds.size(); ++k) {
      SectionGraph section = section_of(stage, kinds[k].second, nodes[k], reads, numbers);
      section.kind = kinds[k].first;
      if (!section.graph.nodes.empty() || !section.takes.empty() || !section.gives.empty()) out.sections.push_back(std::move(section));
    }
    return out;
  }

  /// Which nodes a section runs. Notes what it reads of earlier sections and of other stages.
  std::vector<bool> nodes_of(int32_t stage, const std::vector<Part>& parts, SlotReads& reads) {
    std::vector<bool> in(graph_.nodes.size());
    const auto has = [&](Part part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
    const auto note = [&](ValueId id, Part born, Part by) {
      Reads& read = reads.try_emplace(id, Reads{born, {}}).first->second;
      read.by.insert(by);
    };
    std::vector<std::pair<ValueId, Part>> open;
    const auto add = [&](size_t index, Part by) {
      in[index] = true;
      for (ValueId id : graph_.nodes[index].inputs)
        if (id != no_value) open.emplace_back(id, by);
    };
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& one = graph_.nodes[i];
      if (stage_[i] == stage && has(part_[i]) && !one.recomputed) add(i, part_[i]);
      if (gives(one, stage) && is_used(i) && has(part_of_cross(one))) open.emplace_back(one.inputs[0], part_of_cross(one));
      // What is taken has a place also where only later sections read it.
      if (takes(one, stage) && is_used(i) && has(part_of_cross(one))) note(one.outputs[0], part_of_cross(one), part_of_cross(one));
    }
    while (!open.empty()) {
      const auto [id, by] = open.back();
      open.pop_back();
      const int32_t index = maker(id);
      if (index < 0 || in[static_cast<size_t>(index)]) continue;
      const Node& made = node(index);
      const auto i = static_cast<size_t>(index);
      if (is_cross(made)) note(id, part_of_cross(made), by);
      else if (everywhere_[i] || is_view(made) || made.recomputed) add(i, by);
      else note(id, part_[i], by);
    }
    return in;
  }
  bool is_used(size_t index) const {
    return std::binary_search(crosses_.begin(), crosses_.end(), static_cast<int32_t>(index));
  }

  Slot slot(ValueId id, const Reads& read) const {
    const Part last = *read.by.rbegin();
    const bool halves = options_.halves;
    Slot out;
    out.pool = last <= read.born               ? SlotPool::action
               : read.born == input_gradient   ? SlotPool::input_to_weight
               : halves && last == weight_gradient ? SlotPool::forward_to_weight
                                                   : SlotPool::forward_to_input;
    const Type& type = graph_.value(id).type;
    out.dtype = type.dtype;
    if (!type.dims || !is_bound(*type.dims))
      throw Error(Code::unsupported,
                  cat(describe(graph_, node(maker(id))), " makes ", text(type, graph_.symbols),
                      ", whose size is known only when it is computed, and a later section of its stage reads it"),
                  "cut the stages elsewhere");
    out.dims = *type.dims;
    return out;
  }
  /// Whether inputs tell the sizes.
  bool is_bound(const Dims& dims) const {
    std::set<SymbolId> known;
    for (ValueId id : graph_.inputs)
      for (const Dim& dim : graph_.value(id).type.dims.value_or(Dims{}))
        for (SymbolId symbol : dim.symbols()) known.insert(symbol);
    return std::all_of(dims.begin(), dims.end(), [&](const Dim& dim) {
      const auto symbols = dim.symbols();
      return std::all_of(symbols.begin(), symbols.end(), [&](SymbolId symbol) { return known.contains(symbol); });
    });
  }

  SectionGraph section_of(int32_t stage, const std::vector<Part>& parts, const std::vector<bool>& in, const SlotReads& reads,
                          const std::map<ValueId, int32_t>& numbers) const {
    const auto has = [&](Part part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
    SectionGraph out;
    Graph& graph = out.graph = graph_;
    graph.nodes.clear();
    graph.outputs.clear();
    std::vector<ValueId> written, sums;
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i]) graph.nodes.push_back(graph_.nodes[i]);
    for (size_t k = 0; k < graph_.outputs.size(); ++k) {
      const ValueId id = graph_.outputs[k];
      if (id == no_value || maker(id) < 0 || !in[static_cast<size_t>(maker(id))] ||
          !(stage_[static_cast<size_t>(maker(id))] == stage && has(part_[static_cast<size_t>(maker(id))])))
        continue;
      if (is_sum(id)) {
        sums.push_back(id);
        continue;
      }
      out.results.push_back(static_cast<int32_t>(k));
      graph.outputs.push_back(id);
    }
    for (const auto& [id, read] : reads) {
      const Node& made = node(maker(id));
      const bool makes = in[static_cast<size_t>(maker(id))];
      const bool taken = is_cross(made) && has(read.born);
      const bool read_here = std::any_of(read.by.begin(), read.by.end(), has);
      // What both halves of a whole backward pass read is made and read in one section.
      const bool passes = makes && !is_cross(made) &&
                          std::all_of(read.by.begin(), read.by.end(), [&](Part part) { return has(part); });
      if (passes || !(makes || taken || read_here)) continue;
      out.slots.emplace(id, numbers.at(id));
      if (makes) written.push_back(id);
      else graph.inputs.push_back(id);
    }
    add_messages(stage, has, numbers, out);
    graph.outputs.insert(graph.outputs.end(), written.begin(), written.end());
    graph.outputs.insert(graph.outputs.end(), sums.begin(), sums.end());
    graph.remove_dead();
    return out;
  }

  template <class Has>
  void add_messages(int32_t stage, const Has& has, const std::map<ValueId, int32_t>& numbers, SectionGraph& out) const {
    const auto message = [](std::vector<StageMessage>& all, int64_t other) -> StageMessage& {
      auto found = std::find_if(all.begin(), all.end(), [&](const StageMessage& one) { return one.stage == other; });
      if (found != all.end()) return *found;
      return all.emplace_back(StageMessage{static_cast<int32_t>(other), {}});
    };
    for (int32_t index : crosses_) {  // in one order on both sides
      const Node& cross = node(index);
      if (!has(part_of_cross(cross))) continue;
      if (takes(cross, stage)) {
        StageMessage& take = message(out.takes, cross.attributes.integer("from"));
        take.values.push_back(numbers.at(cross.outputs[0]));
      }
      if (gives(cross, stage)) {
        StageMessage& give = message(out.gives, cross.attributes.integer("to"));
        give.values.push_back(static_cast<int32_t>(out.graph.outputs.size()));
        out.graph.outputs.push_back(cross.inputs[0]);
      }
    }
    // As check_schedule takes and gives them.
    for (std::vector<StageMessage>* messages : {&out.takes, &out.gives})
      std::sort(messages->begin(), messages->end(),
                [](const StageMessage& a, const StageMessage& b) { return a.stage < b.stage; });
  }

  const Graph& graph_;
  const OpSet& ops_;
  const SplitOptions& options_;
  const std::vector<int32_t> producer_;
  std::vector<bool> everywhere_;  ///< by node
  std::vector<bool> of_weights_;  ///< by value: no input reaches it
  std::vector<int32_t> stage_;    ///< by node; -1: of no single stage
  std::vector<Part> part_;        ///< by node
  std::vector<int32_t> crosses_;  ///< nodes, ascending
};

}  // namespace

std::vector<StageGraphs> split(const Graph& graph, const OpSet& ops, const SplitOptions& options) {
  return Splitter(graph, ops, options).run();
}

}  // namespace plait
