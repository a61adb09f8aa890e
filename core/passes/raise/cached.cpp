// Raise, cache contents: a file may cache less than keys and values (e.g. a latent from which all heads' are
// computed) and recompute these for all tokens in each run. What depends only on its own token can be cached instead:
// then the cache is directly before attention, as in files that cache keys and values.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/passes/raise/region.h"

namespace plait {
namespace {

/// Concatenation of past and new tokens.
struct Join {
  size_t cache = 0;  ///< index in the interface
  ValueId fresh = no_value;
  int64_t axis = 0;
};

/// A value that the rest of the graph reads, computed only from joins.
struct End {
  ValueId value = no_value;
  std::vector<int32_t> nodes;  ///< from the joins to the value, ascending
  std::set<ValueId> joins;
  int64_t axis = 0;  ///< of the tokens
};

/// Evaluates ends with shared joins, with a past and without.
class Trial {
 public:
  Trial(const Graph& graph, const PassContext& context)
      : graph_(graph),
        context_(context),
        whole_(evaluator_at(graph, context, probe)),
        alone_(evaluator_at(graph, context, probe)) {}

  /// Whether new tokens give the same results without the past.
  bool agrees(const End& end, ValueId fresh, const std::map<ValueId, Join>& joins) {
    for (ValueId id : end.joins)
      if (bound_.insert(id).second) bind(id, joins.at(id));
    const Tensor expected = whole_.value(end.value);
    return close(floats(alone_.value(fresh)), tail(floats(expected), expected.shape(), end.axis));
  }

 private:
  static constexpr Probe probe{2, 2};

  void bind(ValueId id, const Join& join) {
    auto all = shape_at(graph_, context_, id, probe), some = shape_at(graph_, context_, join.fresh, probe);
    if (!all || !some) throw Error(Code::unsupported, "the size of a cache is not known");
    std::vector<float> numbers = samples(static_cast<size_t>(all->elements()), -1, 1);
    whole_.bind(id, tensor(id, *all, numbers));
    alone_.bind(join.fresh, tensor(join.fresh, *some, tail(numbers, *all, join.axis)));
  }
  Tensor tensor(ValueId id, const Shape& shape, const std::vector<float>& numbers) const {
    Tensor f32 = Tensor::of<float>(DType::f32, shape, numbers);
    return materialize({{}, f32, {{RecipeStep::Kind::cast, {}, graph_.value(id).type.dtype}}});
  }
  /// The rows of the new tokens.
  static std::vector<float> tail(const std::vector<float>& all, const Shape& shape, int64_t axis) {
    const int64_t inner = shape.elements(static_cast<int>(axis) + 1, shape.rank());
    std::vector<float> out;
    for (size_t i = 0; i < all.size(); ++i)
      if (static_cast<int64_t>(i) / inner % (probe.past + probe.tokens) >= probe.past) out.push_back(all[i]);
    return out;
  }

  const Graph& graph_;
  const PassContext& context_;
  Evaluator whole_, alone_;
  std::set<ValueId> bound_;
};

class CacheMover {
 public:
  CacheMover(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), interface_(context.decoder.interface), producer_(producers(graph)) {}

  bool run() {
    if (interface_.fixed_buffers) return false;
    find_joins();
    std::vector<End> ends = find_ends();
    std::set<ValueId> moved = joins_to_move(ends);
    std::erase_if(ends, [&](const End& end) { return !moved.count(*end.joins.begin()); });
    if (ends.empty()) return false;
    const int64_t steps = steps_of(ends);
    Graph before = graph_;
    std::vector<ValueId> fresh;
    for (const End& end : ends) fresh.push_back(of_new_tokens(end));
    place_nodes();
    if (!all_agree(ends, fresh, steps)) {
      graph_ = std::move(before);
      return false;
    }
    for (size_t k = 0; k < ends.size(); ++k) keep(ends[k], fresh[k]);
    place_nodes();
    std::set<size_t> gone;
    for (ValueId id : moved) gone.insert(joins_.at(id).cache);
    for (size_t cache = interface_.caches.size(); cache-- > 0;)
      if (gone.count(cache)) interface_.caches.erase(interface_.caches.begin() + static_cast<std::ptrdiff_t>(cache));
    interface_.caches.insert(interface_.caches.end(), kept_.begin(), kept_.end());
    return true;
  }

 private:
  void find_joins();
  std::vector<End> find_ends() const;
  std::optional<End> end_of(ValueId value) const;
  std::set<ValueId> joins_to_move(const std::vector<End>& ends) const;
  ValueId of_new_tokens(const End& end);
  int64_t steps_of(const std::vector<End>& ends) const;
  bool all_agree(const std::vector<End>& ends, const std::vector<ValueId>& fresh, int64_t steps) const;
  void keep(const End& end, ValueId fresh);
  void place_nodes();

  Dim all_tokens() const { return Dim::symbol(interface_.past) + Dim::symbol(interface_.sequence); }
  bool is_sizes(int32_t node) const {
    return node >= 0 && graph_.nodes[static_cast<size_t>(node)].op == "plait.Sizes";
  }

  Graph& graph_;
  PassContext& context_;
  DecoderInterface& interface_;
  std::vector<int32_t> producer_;
  std::map<ValueId, Join> joins_;                             ///< by the joined value
  std::vector<std::pair<ValueId, std::vector<Node>>> added_;  ///< to insert after the node that makes the value
  std::vector<DecoderInterface::Cache> kept_;
};

void CacheMover::find_joins() {
  for (const Node& node : graph_.nodes) {
    if (node.op != "Concat" || node.inputs.size() != 2) continue;
    for (size_t k = 0; k < interface_.caches.size(); ++k) {
      const auto& cache = interface_.caches[k];
      int64_t axis = node.attributes.integer("axis", 0);
      if (axis < 0) axis += static_cast<int64_t>(cache.dims.size());
      if (cache.past == node.inputs[0] && cache.axis == axis) joins_[node.outputs[0]] = {k, node.inputs[1], axis};
    }
  }
}

/// Values computed only from joins and constants, with readers that also read other data, such as queries.
std::vector<End> CacheMover::find_ends() const {
  std::vector<bool> data = data_values(graph_, interface_), cached(data.size());
  for (const auto& [id, join] : joins_) cached[static_cast<size_t>(id)] = true;
  std::set<ValueId> values;
  for (const Node& node : graph_.nodes) {
    bool any = false, all = true;
    for (ValueId id : node.inputs)
      if (id != no_value && data[static_cast<size_t>(id)]) {
        any = any || cached[static_cast<size_t>(id)];
        all = all && cached[static_cast<size_t>(id)];
      }
    if (node.op == "Shape" || node.op == "Size") continue;
    for (ValueId id : node.outputs)
      if (id != no_value && any && all) cached[static_cast<size_t>(id)] = true;
    for (ValueId id : node.inputs)
      if (id != no_value && any && !all && cached[static_cast<size_t>(id)]) values.insert(id);
  }
  std::vector<End> out;
  for (ValueId value : values) {
    auto end = end_of(value);
    if (!end) return {};
    out.push_back(std::move(*end));
  }
  return out;
}

std::optional<End> CacheMover::end_of(ValueId value) const {
  End end;
  end.value = value;
  const auto& dims = graph_.value(value).type.dims;
  if (!dims || std::count(dims->begin(), dims->end(), all_tokens()) != 1) return std::nullopt;
  end.axis = std::find(dims->begin(), dims->end(), all_tokens()) - dims->begin();
  std::set<int32_t> nodes;
  std::vector<ValueId> left{value};
  while (!left.empty()) {
    const ValueId id = left.back();
    left.pop_back();
    if (id == no_value || graph_.value(id).constant) continue;
    if (joins_.count(id)) {
      end.joins.insert(id);
      continue;
    }
    const int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker < 0) return std::nullopt;  // positions, or a mask
    if (nodes.insert(maker).second) {
      const Node& node = graph_.nodes[static_cast<size_t>(maker)];
      if (!node.bodies.empty()) return std::nullopt;
      left.insert(left.end(), node.inputs.begin(), node.inputs.end());
    }
  }
  end.nodes.assign(nodes.begin(), nodes.end());
  return end.joins.empty() ? std::nullopt : std::optional(end);
}

/// The joins whose elements are computed with, not only reordered, and those that go with them.
std::set<ValueId> CacheMover::joins_to_move(const std::vector<End>& ends) const {
  std::set<ValueId> out;
  auto multiplies = [&](int32_t node) {
    const std::string& op = graph_.nodes[static_cast<size_t>(node)].op;
    return op == "MatMul" || op == "Gemm" || op == "Einsum";
  };
  for (const End& end : ends)
    if (std::any_of(end.nodes.begin(), end.nodes.end(), multiplies)) out.insert(end.joins.begin(), end.joins.end());
  for (size_t before = 0; before != out.size();) {
    before = out.size();
    for (const End& end : ends)
      if (std::any_of(end.joins.begin(), end.joins.end(), [&](ValueId id) { return out.count(id); }))
        out.insert(end.joins.begin(), end.joins.end());
  }
  return out;
}

/// The same nodes over the new tokens only, without a past.
ValueId CacheMover::of_new_tokens(const End& end) {
  std::map<ValueId, ValueId> renamed;
  for (ValueId id : end.joins) renamed[id] = joins_.at(id).fresh;
  std::vector<Node> made;
  for (int32_t index : end.nodes) {
    Node copy = graph_.nodes[static_cast<size_t>(index)];
    if (is_sizes(index)) {
      Dims sizes = sizes_of(copy, graph_.symbols);
      for (Dim& dim : sizes) dim = dim.substitute(interface_.past, Dim(0));
      make_sizes(copy, sizes, copy.attributes.has("scalar"), graph_.symbols);
    }
    for (ValueId& id : copy.inputs)
      if (auto known = renamed.find(id); known != renamed.end()) id = known->second;
    for (ValueId& id : copy.outputs) {
      if (id == no_value) continue;
      Type type = graph_.value(id).type;
      if (type.dims)
        for (Dim& dim : *type.dims) dim = dim.substitute(interface_.past, Dim(0));
      id = renamed[id] = graph_.add_value({}, std::move(type));
    }
    made.push_back(std::move(copy));
  }
  added_.emplace_back(end.value, std::move(made));
  return renamed.at(end.value);
}

/// Cost of evaluating the ends: weights are read a few times, however large they are.
int64_t CacheMover::steps_of(const std::vector<End>& ends) const {
  int64_t out = 0;
  for (const End& end : ends)
    for (int32_t index : end.nodes)
      for (ValueId id : graph_.nodes[static_cast<size_t>(index)].inputs)
        if (id != no_value && graph_.value(id).constant) out += 32 * graph_.value(id).constant->shape().elements();
  return out;
}

bool CacheMover::all_agree(const std::vector<End>& ends, const std::vector<ValueId>& fresh, int64_t steps) const {
  PassContext context = context_;
  context.budget = std::make_shared<EvaluationBudget>();
  context.budget->steps += steps;
  std::optional<Trial> trial;  // keys and values of one layer share their source
  ValueId first = no_value;
  try {
    for (size_t k = 0; k < ends.size(); ++k) {
      if (!trial || first != *ends[k].joins.begin()) trial.emplace(graph_, context);
      first = *ends[k].joins.begin();
      if (!trial->agrees(ends[k], fresh[k], joins_)) return false;
    }
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    return false;  // cannot be evaluated
  }
  return true;
}

/// Makes the end's readers read a cache of its own, which holds the end's values for past tokens.
void CacheMover::keep(const End& end, ValueId fresh) {
  const Type type = graph_.value(end.value).type;
  Dims dims = *type.dims, joined = *type.dims;
  dims[static_cast<size_t>(end.axis)] = Dim::symbol(interface_.past);
  const auto& first = interface_.caches[joins_.at(*end.joins.begin()).cache];
  DecoderInterface::Cache cache;
  cache.past = graph_.add_value(cat(graph_.value(first.past).name, ".of.", end.value), {type.dtype, dims});
  cache.present = static_cast<int>(graph_.outputs.size());
  cache.layer = first.layer;
  cache.axis = static_cast<int>(end.axis);
  cache.dims = dims;
  Node join;
  join.op = "Concat";
  join.name = graph_.nodes[static_cast<size_t>(producer_[static_cast<size_t>(end.value)])].name;
  join.attributes.set("axis", end.axis);
  join.inputs = {cache.past, fresh};
  join.outputs = {graph_.add_value({}, {type.dtype, joined})};
  graph_.replace_uses(end.value, join.outputs[0]);
  graph_.inputs.push_back(cache.past);
  graph_.outputs.push_back(join.outputs[0]);
  added_.emplace_back(fresh, std::vector<Node>{std::move(join)});
  kept_.push_back(std::move(cache));
}

void CacheMover::place_nodes() {
  std::vector<Node> nodes;
  for (Node& node : graph_.nodes) {
    std::vector<ValueId> outputs = node.outputs;
    nodes.push_back(std::move(node));
    for (auto& [value, made] : added_)
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end())
        for (Node& one : made) nodes.push_back(std::move(one));
  }
  graph_.nodes = std::move(nodes);
  added_.clear();
  producer_ = producers(graph_);
}

}  // namespace

bool keep_what_attention_reads(Graph& graph, PassContext& context) { return CacheMover(graph, context).run(); }

}  // namespace plait
