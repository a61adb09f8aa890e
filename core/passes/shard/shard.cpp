#include "core/passes/shard/shard.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/shard/local.h"
#include "core/passes/shard/sums.h"

namespace plait {
namespace {

/// A value of the global graph in the local graph.
struct Place {
  Sharding sharding;
  ValueId local = no_value;
};

/// The cost of one placement of a node.
struct Choice {
  FactorAxes axes;
  Placement placement;  ///< operands with the partial sums that may remain
  int displaced = 0;    ///< weights and States whose sharding would differ from their seeds
  double bytes = 0;     ///< moved for its operands, and to reduce its partial results
  int owed = 0;         ///< axes of its partial results: operands reduced before may serve other readers too
  int cut = 0;          ///< axes that share its work
  bool early = false;   ///< an operand's partial sum is reduced that could remain
  bool possible() const { return bytes < HUGE_VAL; }
  bool better_than(const Choice& other) const {
    auto order = [](const Choice& one) {
      return std::tuple(!one.possible(), one.displaced, one.bytes, one.owed, -one.cut);
    };
    return order(*this) < order(other);
  }
};

class Sharder {
 public:
  Sharder(Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& seeds, const NodeRules& rules,
          const ShardSettings& settings, bool early)
      : graph_(graph),
        ops_(ops),
        mesh_(mesh),
        seeds_(seeds),
        rules_(rules),
        sequence_(settings.sequence),
        stored_(settings.stored),
        early_(early),
        producer_(producers(graph)),
        sums_(graph),
        accumulator_(accumulators(graph, ops, rules)) {
    local_.name = graph.name;
    local_.symbols = graph.symbols;
    for (SymbolId id = 0; id < graph.symbols.size(); ++id)
      typical_.push_back(std::max<int64_t>(graph.symbols[id].typical, 1));
  }

  ShardPlan run() {
    check_seeds(graph_, seeds_, mesh_);
    for (ValueId id : graph_.inputs) {
      auto seed = seeds_.find(id);
      const Sharding sharding = seed != seeds_.end() ? seed->second : Sharding::replicated(rank_of(id));
      const ValueId made = add_value(graph_.value(id).name, graph_.value(id).type, sharding);
      local_.inputs.push_back(made);
      places_[id].push_back({sharding, made});
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (sums_.is_within(i)) continue;
      now_ = static_cast<int32_t>(i);
      if (sums_.is_sum(i)) place_sum(i);
      else place_node(graph_.nodes[i]);
    }
    now_ = -1;
    for (ValueId id : graph_.outputs)
      local_.outputs.push_back(kept_.contains(id) ? places_.at(id).front().local
                                                  : at(id, Sharding::replicated(rank_of(id)), "the output"));
    graph_ = std::move(local_);
    return std::move(plan_);
  }

 private:
  size_t rank_of(ValueId id) const {
    const auto& dims = graph_.value(id).type.dims;
    return dims ? dims->size() : 0;
  }
  /// Constants and states have any sharding until first use: loading a shard costs no more than loading all.
  bool is_free(ValueId id) const {
    return (graph_.value(id).constant || states_.contains(id)) && !seeds_.contains(id) && !placed_sum(id);
  }
  bool is_state(ValueId id) const {
    const int32_t maker = static_cast<size_t>(id) < producer_.size() ? producer_[static_cast<size_t>(id)] : -1;
    return maker >= 0 && plait::is_state(graph_.nodes[static_cast<size_t>(maker)]);
  }
  /// Whether it is a State's memory, or an in-place result on it.
  bool is_kept(ValueId id) const { return id != no_value && (is_state(id) || kept_.contains(id)); }
  bool is_sum_state(ValueId id) const {
    return is_state(id) &&
           graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(id)])].attributes.integer("sum", 0);
  }
  /// An unused State that may become a partial sum.
  bool is_open_sum(ValueId id) const { return states_.contains(id) && is_sum_state(id) && !placed_sum(id); }
  /// The sharding of a sum of the same key that another pipeline stage has used already; null if none has.
  const Sharding* placed_sum(ValueId id) const {
    return states_.contains(id) && is_sum_state(id) ? placed_state(id) : nullptr;
  }
  /// The sharding of a State, once a node has used it or another of its key; null before.
  const Sharding* placed_state(ValueId state) const {
    const Node& node = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(state)])];
    auto placed = plan_.states.find(node.attributes.string("key", ""));
    return placed == plan_.states.end() ? nullptr : &placed->second;
  }
  size_t updates(const Node& node) const {
    const OpSchema* schema = ops_.find(node.op);
    return schema ? static_cast<size_t>(schema->updates) : 0;
  }

  /// The sharding of the State that accumulates a summand, if another stage has used it, or as its seed; null: none, or any.
  const Sharding* wanted(ValueId id) const {
    auto sum = accumulator_.find(id);
    if (sum == accumulator_.end()) return nullptr;
    if (const Sharding* placed = placed_state(sum->second)) return placed;
    auto seed = seeds_.find(sum->second);
    return seed == seeds_.end() ? nullptr : &seed->second;
  }

  double bytes_of(ValueId id) const {
    const auto at = static_cast<size_t>(id);
    if (at >= bytes_.size()) bytes_.resize(static_cast<size_t>(graph_.value_count()), -1);
    if (bytes_[at] >= 0) return bytes_[at];
    const Type& type = graph_.value(id).type;
    double out = dtype_bits(type.dtype) / 8.0;
    if (type.dims)
      for (const Dim& dim : *type.dims) out *= static_cast<double>(std::max<int64_t>(dim.evaluate(typical_), 1));
    return bytes_[at] = out;
  }

  // ---- choosing ----

  /// The sharding of an operand before the node: as it was made, or its seed.
  const Sharding& home(ValueId id) const {
    if (const Sharding* placed = placed_sum(id)) return *placed;
    auto seed = seeds_.find(id);
    return seed != seeds_.end() ? seed->second : places_.at(id).front().sharding;
  }

  /// For each mesh axis the factors that it may shard: those of operands sharded by it, and tokens if an operand's
  /// partial sum may be reduce-scattered over them. "" is no factor.
  std::vector<std::vector<std::string>> candidates(const Node& node, const NodeRule& rule) const {
    std::vector<std::vector<std::string>> out(static_cast<size_t>(mesh_.sub_axes()), {std::string()});
    auto add = [&](AxisId axis, const RuleDim& dim) {
      std::vector<std::string>& list = out[static_cast<size_t>(axis)];
      for (const Factor& factor : dim.factors)
        if (!factor.whole && !factor.fixed && std::find(list.begin(), list.end(), factor.name) == list.end())
          list.push_back(factor.name);
    };
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId id = node.inputs[k];
      if (id == no_value || is_free(id)) continue;
      const Sharding& now = home(id);
      const auto& dims = rule.rule.operands[k].dims;
      for (size_t d = 0; d < now.dims.size() && d < dims.size(); ++d) {
        for (AxisId axis : now.dims[d]) add(axis, dims[d]);
        if (!(*graph_.value(id).type.dims)[d].is_constant())
          for (AxisId axis : sequence_)
            if (now.owes(axis)) add(axis, dims[d]);
      }
    }
    for (size_t k = 0; k < node.outputs.size(); ++k)
      if (const Sharding* goal = wanted(node.outputs[k])) {
        for (size_t d = 0; d < goal->dims.size(); ++d)
          for (AxisId axis : goal->dims[d]) add(axis, rule.rule.results[k].dims[d]);
        for (const Pending& one : goal->pending)
          for (const RuleTensor& operand : rule.rule.operands)
            for (const RuleDim& dim : operand.dims) add(one.axis, dim);
      }
    return out;
  }

  /// The axes of a factor in the operands' order.
  AxisList ordered(const Node& node, AxisList axes) const {
    for (ValueId id : node.inputs) {
      if (id == no_value || is_free(id)) continue;
      const AxisList all = home(id).axes();
      auto place = [&](AxisId axis) { return std::find(all.begin(), all.end(), axis); };
      if (std::all_of(axes.begin(), axes.end(), [&](AxisId axis) { return place(axis) != all.end(); })) {
        std::sort(axes.begin(), axes.end(), [&](AxisId a, AxisId b) { return place(a) < place(b); });
        return axes;
      }
    }
    return axes;
  }

  /// The cost of an operand at `target`, from its cheapest existing sharding.
  double cost(ValueId id, const Sharding& target) const {
    if (id == no_value || is_free(id)) return 0;
    if (graph_.value(id).constant)  // with another sharding it is held twice
      return home(id) == target ? 0 : bytes_of(id);
    if (is_open_sum(id) && home(id).dims == target.dims) return 0;
    if (is_state(id) && (states_.contains(id) || seeds_.contains(id))) {
      if (!may_lead(home(id), target)) return HUGE_VAL;
      return moved_bytes(home(id), target, bytes_of(id), mesh_);
    }
    double best = -1;
    for (const Place& place : places_.at(id)) {
      if (!may_lead(place.sharding, target)) continue;
      const double bytes = moved_bytes(place.sharding, target, bytes_of(id), mesh_);
      if (best < 0 || bytes < best) best = bytes;
    }
    PLAIT_ASSERT(best >= 0);
    return best;
  }
  /// Whether a seed would be violated: that outweighs the cost of activations.
  bool displaces(ValueId id, const Sharding& target) const {
    if (id == no_value || !seeds_.contains(id)) return false;
    return graph_.value(id).constant ? home(id) != target : is_state(id) && home(id).dims != target.dims;
  }
  static bool may_lead(const Sharding& from, const Sharding& to) {
    return std::all_of(to.pending.begin(), to.pending.end(), [&](const Pending& one) {
      return std::find(from.pending.begin(), from.pending.end(), one) != from.pending.end();
    });
  }

  /// Reduces a partial sum that could remain before the node if only that moves fewer bytes: an operand already
  /// reduced for other readers is then available, and needs no further reduction to match another.
  std::optional<Choice> price(const Node& node, const NodeRule& rule, const FactorAxes& axes,
                              const std::vector<std::vector<Pending>>& owed) const {
    const std::optional<Placement> placement = place(rule, axes, mesh_);
    if (!placement) return std::nullopt;
    const std::vector<AxisList> passes = passing(rule.rule, owed, axes), none(passes.size());
    Choice late = price(node, axes, *placement, passes);
    if (!early_ || passes == none) return late;
    Choice early = price(node, axes, *placement, none);
    early.early = true;
    return early.bytes < late.bytes ? std::move(early) : std::move(late);
  }

  /// By operand, the partial sums that a node may pass on to its results.
  std::vector<std::vector<Pending>> owed_to(const Node& node) const {
    std::vector<std::vector<Pending>> out(node.inputs.size());
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (const ValueId id = node.inputs[k]; id != no_value)
        out[k] = is_open_sum(id) ? owed_by_others(node, k) : owed_by(id);
    return out;
  }

  Choice price(const Node& node, const FactorAxes& axes, const Placement& placement,
               const std::vector<AxisList>& passes) const {
    Choice out{axes, placement};
    for (const auto& [factor, list] : axes) out.cut += static_cast<int>(list.size());
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      for (AxisId axis : passes[k]) out.placement.operands[k].pending.push_back({axis, PendingKind::sum});
      out.bytes += cost(node.inputs[k], out.placement.operands[k]);
      out.displaced += displaces(node.inputs[k], out.placement.operands[k]);
      for (Sharding& result : out.placement.results)
        for (AxisId axis : passes[k])
          if (!result.owes(axis)) result.pending.push_back({axis, PendingKind::sum});
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      Sharding& result = out.placement.results[k];
      std::sort(result.pending.begin(), result.pending.end(),
                [](const Pending& a, const Pending& b) { return a.axis < b.axis; });
      if (k < updates(node) && is_kept(node.inputs[k])) {
        if (!stays(node.inputs[k], out.placement.operands[k])) out.bytes = HUGE_VAL;
        continue;  // it is reduced once a step, or never
      }
      out.owed += static_cast<int>(result.pending.size());
      if (node.outputs[k] == no_value) continue;
      const Sharding goal = goal_of(node.outputs[k], result);
      out.bytes += may_lead(result, goal) ? moved_bytes(result, goal, bytes_of(node.outputs[k]), mesh_) : HUGE_VAL;
    }
    return out;
  }
  /// Whether a State would be updated in place.
  bool stays(ValueId id, const Sharding& target) const {
    if (stored_.contains(id)) return stored_.at(id) == target;
    return is_free(id) || (is_open_sum(id) ? home(id).dims == target.dims : home(id) == target);
  }
  /// The minimal target sharding of a result: no partial sums, except those that its State accumulates.
  Sharding goal_of(ValueId id, const Sharding& made) const {
    const Sharding* sum = wanted(id);
    if (!sum) return {made.dims, {}};
    if (!sum->pending.empty()) return *sum;
    Sharding out{sum->dims, {}};
    const AxisList cut = out.axes();
    for (const Pending& one : made.pending)
      if (std::find(cut.begin(), cut.end(), one.axis) == cut.end()) out.pending.push_back(one);
    return out;
  }

  Choice choose(const Node& node, const NodeRule& rule) {
    const auto options = candidates(node, rule);
    const std::vector<std::vector<Pending>> owed = owed_to(node);
    std::vector<size_t> pick(options.size(), 0);
    std::optional<Choice> best;
    std::vector<PlannedChoice::Candidate> all;
    size_t chosen = 0;
    for (bool more = true; more;) {
      FactorAxes axes;
      for (size_t axis = 0; axis < pick.size(); ++axis)
        if (const std::string& factor = options[axis][pick[axis]]; !factor.empty())
          axes[factor].push_back(static_cast<AxisId>(axis));
      for (auto& [factor, list] : axes) list = ordered(node, std::move(list));
      std::optional<Choice> one = price(node, rule, axes, owed);
      if (one) {
        all.push_back({one->axes, one->displaced, one->bytes, one->owed});
        if (!best || one->better_than(*best)) best = std::move(one), chosen = all.size() - 1;
      }
      more = false;
      for (size_t axis = 0; axis < pick.size() && !more; ++axis) {
        more = ++pick[axis] < options[axis].size();
        if (!more) pick[axis] = 0;
      }
    }
    PLAIT_ASSERT(best);
    if (!best->possible())
      throw Error(Code::unsupported, cat(describe(node), " cannot change its operand where the ranks have it"));
    plan_.paid_early |= best->early;
    if (all.size() > 1) {
      all[chosen].chosen = true;
      plan_.choices.push_back({now_, std::move(all)});
    }
    return std::move(*best);
  }

  // ---- sums of more than two ----

  std::vector<Pending> owed_by(ValueId id) const {
    return is_free(id) || graph_.value(id).constant ? std::vector<Pending>{} : home(id).pending;
  }
  std::vector<Pending> owed_by_others(const Node& node, size_t but) const {
    std::vector<Pending> out;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (k != but && node.inputs[k] != no_value)
        for (const Pending& one : owed_by(node.inputs[k]))
          if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
    return out;
  }

  /// Summands that are partial along the same axes are added first, and reduced once (parallel attention and MLP, as
  /// in GPT-J). Otherwise the sum keeps the graph's order.
  void place_sum(size_t index) {
    const Node root = graph_.nodes[index];
    std::vector<std::vector<ValueId>> groups;  // by equal partial axes; others are single
    bool shared = false;
    for (ValueId id : sums_.summands(index)) {
      const std::vector<Pending> owed = owed_by(id);
      auto same = owed.empty() ? groups.end() : std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        return owed_by(group[0]) == owed;
      });
      if (same == groups.end()) groups.push_back({id});
      else same->push_back(id), shared = true;
    }
    if (!shared) return place_in_order(root);
    std::stable_partition(groups.begin(), groups.end(), [](const auto& group) { return group.size() > 1; });
    std::vector<ValueId> all;
    for (const std::vector<ValueId>& group : groups) {
      ValueId sum = group[0];
      for (size_t i = 1; i < group.size(); ++i)
        sum = add(root, sum, group[i], groups.size() == 1 && i + 1 == group.size());
      all.push_back(sum);
    }
    ValueId sum = all[0];
    for (size_t i = 1; i < all.size(); ++i) sum = add(root, sum, all[i], i + 1 == all.size());
  }
  /// Places an Add like `root`, which makes root's result if it is the last.
  ValueId add(const Node& root, ValueId a, ValueId b, bool last) {
    Node node = root;
    node.inputs = {a, b};
    if (!last) node.outputs = {sum_of(a, b, graph_.value(root.outputs[0]).type)};
    place_node(node);
    return node.outputs[0];
  }
  void place_in_order(const Node& node) {
    for (ValueId id : node.inputs)
      if (const int32_t inner = sums_.inner(id); inner >= 0)
        place_in_order(Node(graph_.nodes[static_cast<size_t>(inner)]));
    place_node(node);
  }
  /// A new value for the sum of two, possibly broadcast to the sizes of all.
  ValueId sum_of(ValueId a, ValueId b, Type type) {
    const auto &x = graph_.value(a).type.dims, &y = graph_.value(b).type.dims;
    if (x != type.dims && y != type.dims) type.dims = x->size() < y->size() ? y : x;
    return graph_.add_value("", std::move(type));
  }

  // ---- building ----

  void place_node(const Node& node) {
    if (plait::is_state(node)) {
      states_.emplace(node.outputs[0], &node);
      return;
    }
    const auto index = static_cast<size_t>(now_);
    const bool is_new = &node != &graph_.nodes[index];  // added to reorder a sum
    const std::optional<NodeRule> own = is_new ? rule_of(graph_, ops_, node) : std::nullopt;
    const std::optional<NodeRule>& rule = is_new ? own : rules_[index];
    if (!rule) return place_whole(node);
    Choice choice = choose(node, *rule);
    Node local = node;
    localize(local, *ops_.find(node.op), *rule, choice.axes, mesh_);
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (node.inputs[k] != no_value)
        local.inputs[k] = at(node.inputs[k], choice.placement.operands[k], describe(node));
    emit(node, std::move(local), choice.placement.results);
  }

  void place_whole(const Node& node) {
    Node local = node;
    for (ValueId& id : local.inputs)
      if (id != no_value) id = at(id, Sharding::replicated(rank_of(id)), describe(node));
    std::vector<Sharding> results;
    for (ValueId id : node.outputs) results.push_back(Sharding::replicated(id == no_value ? 0 : rank_of(id)));
    if (!node.inputs.empty()) plan_.unruled.push_back(describe(node));
    emit(node, std::move(local), results);
  }

  ValueId add_value(const std::string& name, const Type& type, const Sharding& sharding) {
    Type local = type;
    if (local.dims) {
      local.dims = local_dims(*type.dims, sharding, mesh_);
      PLAIT_ASSERT(local.dims);
    }
    return local_.add_value(name, std::move(local));
  }

  void emit(const Node& node, Node local, const std::vector<Sharding>& results) {
    std::vector<bool> was_kept;
    for (ValueId id : node.inputs) was_kept.push_back(is_kept(id));
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId id = node.outputs[k];
      if (id == no_value) continue;
      const Value& value = graph_.value(id);
      local.outputs[k] = add_value(value.name, value.type, results[k]);
      places_[id].push_back({results[k], local.outputs[k]});
      if (k < updates(node) && was_kept[k]) kept_.insert(id);
    }
    const OpSchema* schema = ops_.find(node.op);
    if (schema && schema->target >= 0 && !results[0].is_replicated()) {
      const Dims& dims = *local_.value(local.outputs[0]).type.dims;
      Node sizes;
      make_sizes(sizes, dims, false, local_.symbols);
      sizes.outputs = {local_.add_value("", {DType::i64, Dims{Dim(static_cast<int64_t>(dims.size()))}})};
      local.inputs[static_cast<size_t>(schema->target)] = sizes.outputs[0];
      local_.nodes.push_back(std::move(sizes));
    }
    local_.nodes.push_back(std::move(local));
  }

  /// The value at `target`, redistributed unless it already exists.
  ValueId at(ValueId id, const Sharding& target, const std::string& reader) {
    std::vector<Place>& places = places_[id];
    for (const Place& place : places)
      if (place.sharding == target) return place.local;
    if (graph_.value(id).constant) {
      places.push_back({target, constant_at(id, target)});
      return places.back().local;
    }
    if (places.empty()) {
      const Sharding first = first_place(id, target);
      places.push_back({first, state_at(id, first)});
    }
    if (places.back().sharding != target) move(id, target, reader);
    const ValueId out = places.back().local;
    if (stored_.contains(id)) places.resize(1);
    return out;
  }

  /// The sharding of a State that is first used at `target`.
  Sharding first_place(ValueId id, const Sharding& target) const {
    if (auto stored = stored_.find(id); stored != stored_.end()) return stored->second;
    if (const Sharding* placed = placed_sum(id)) return *placed;
    auto seed = seeds_.find(id);
    if (seed == seeds_.end()) return target;
    return is_open_sum(id) && seed->second.dims == target.dims ? target : seed->second;
  }

  ValueId constant_at(ValueId id, const Sharding& target) {
    const Value& value = graph_.value(id);
    Constant part = part_of(*value.constant, target, mesh_);
    const bool first = places_[id].empty();
    if (first) plan_.weights[id] = target;
    else plan_.copies.emplace_back(id, target);
    const ValueId out = local_.add_constant(std::move(part), first ? value.name : std::string());
    local_.value(out).type.dtype = value.type.dtype;
    return out;
  }

  ValueId state_at(ValueId id, const Sharding& target) {
    const Node& node = *states_.at(id);
    plan_.states[node.attributes.string("key", "")] = target;
    Node local = node;
    for (ValueId& initial : local.inputs) initial = at(initial, target, describe(node));
    local.outputs = {add_value(graph_.value(id).name, graph_.value(id).type, target)};
    local_.nodes.push_back(std::move(local));
    states_.erase(id);  // from now on it has this sharding
    return local_.nodes.back().outputs[0];
  }

  void move(ValueId id, const Sharding& target, const std::string& reader) {
    std::vector<Place>& places = places_[id];
    const double bytes = bytes_of(id);
    auto way = [&](const Place& place) {
      return may_lead(place.sharding, target) ? std::pair(moved_bytes(place.sharding, target, bytes, mesh_),
                                                          reshard(place.sharding, target).size())
                                              : std::pair(HUGE_VAL, size_t{0});
    };
    const Place from = *std::min_element(places.begin(), places.end(),
                                         [&](const Place& a, const Place& b) { return way(a) < way(b); });
    Place now = from;
    for (const Collective& step : reshard(from.sharding, target)) {
      const double local_bytes = bytes / static_cast<double>(mesh_.blocks(now.sharding.axes()));
      if (step.kind != CollectiveKind::shard)
        plan_.collectives.push_back({step, name_of(id), reader, moved_bytes(step, local_bytes, mesh_),
                                     local_.value(now.local).type, maker(id)});
      now.sharding = after(step, std::move(now.sharding));
      now.local = add_collective(step, now, graph_.value(id).type, stage_of(id));
      places.push_back(now);
    }
  }

  /// The node that makes a value; for a part of a sum, the node that is placed for it.
  int32_t maker(ValueId id) const {
    return static_cast<size_t>(id) < producer_.size() ? producer_[static_cast<size_t>(id)] : now_;
  }

  std::string name_of(ValueId id) const {
    if (!graph_.value(id).name.empty()) return graph_.value(id).name;
    for (const Node& node : graph_.nodes)
      if (std::find(node.outputs.begin(), node.outputs.end(), id) != node.outputs.end())
        return describe(graph_, node);
    return cat("%", id);
  }

  /// The pipeline stage that makes a value; -1 for inputs.
  int32_t stage_of(ValueId id) const {
    const int32_t index = maker(id);
    return index < 0 ? -1 : graph_.nodes[static_cast<size_t>(index)].stage;
  }

  ValueId add_collective(const Collective& step, const Place& to, const Type& type, int32_t stage) {
    Node node = collective_node(step, mesh_);
    node.inputs = {to.local};
    node.stage = stage;
    node.outputs = {add_value("", type, to.sharding)};
    local_.nodes.push_back(std::move(node));
    return local_.nodes.back().outputs[0];
  }

  Graph& graph_;
  const OpSet& ops_;
  const Mesh& mesh_;
  const ShardSeeds& seeds_;
  const NodeRules& rules_;
  const AxisList sequence_;
  const ShardSeeds& stored_;
  const bool early_;  ///< partial sums may be reduced early
  Graph local_;
  ShardPlan plan_;
  std::map<ValueId, std::vector<Place>> places_;  ///< as it was made, then redistributed copies
  std::map<ValueId, const Node*> states_;         ///< those without a use yet
  std::set<ValueId> kept_;                        ///< in-place results on States
  std::vector<int64_t> typical_;
  mutable std::vector<double> bytes_;  ///< of values, once they were asked for
  const std::vector<int32_t> producer_;
  const Sums sums_;
  const std::map<ValueId, ValueId> accumulator_;  ///< of summands: the State that accumulates them
  int32_t now_ = -1;  ///< the current node
};

}  // namespace

ShardPlan shard(Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& seeds,
                const ShardSettings& settings) {
  const NodeRules own = settings.rules ? NodeRules() : rules_of(graph, ops);
  auto run = [&](Graph& made, bool early) {
    return Sharder(made, ops, mesh, seeds, settings.rules ? *settings.rules : own, settings, early).run();
  };
  // The cheapest for one node may cost later ones more: so also tries reducing every sum as late as possible.
  Graph late_graph = graph;
  ShardPlan plan = run(graph, true);
  if (!plan.paid_early) return plan;
  ShardPlan late = run(late_graph, false);
  if (late.bytes() >= plan.bytes()) return plan;
  graph = std::move(late_graph);
  return late;
}

}  // namespace plait
