// Finds which dims of a graph are the same, and shards the weights that have them.
#include <algorithm>
#include <limits>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/shard/shard.h"

namespace plait {
namespace {

/// Sizes of a graph as products of atoms: a dim is a row of atoms, which the rules of nodes join and split. Query
/// features are first one atom of 64, then, after a Reshape, 4 heads of 16, then 2 key heads with 2 queries each of
/// 16; and that 2 is one atom with the keys'.
class Atoms {
 public:
  int make(int64_t size) {
    atoms_.push_back({size, static_cast<int>(atoms_.size()), -1, -1, false, -1, {}});
    return static_cast<int>(atoms_.size()) - 1;
  }
  struct Atom {
    int64_t size;
    int parent, first, second;  ///< representative; parts, major first, -1: none
    bool whole;
    int whole_for;  ///< the node that needs it unsharded
    AxisList axes;
  };
  Atom& operator[](int id) { return atoms_[static_cast<size_t>(root(id))]; }

  int root(int id) {
    while (atoms_[static_cast<size_t>(id)].parent != id) id = atoms_[static_cast<size_t>(id)].parent;
    return id;
  }
  /// The atoms of a dim, major first, without those of size 1.
  std::vector<int> leaves(int id) {
    id = root(id);
    const Atom atom = atoms_[static_cast<size_t>(id)];
    if (atom.size == 1) return {};
    if (atom.first < 0) return {id};
    std::vector<int> out = leaves(atom.first), rest = leaves(atom.second);
    out.insert(out.end(), rest.begin(), rest.end());
    return out;
  }
  void mark_whole(int id, int node) {
    for (int leaf : leaves(id))
      if (Atom& atom = (*this)[leaf]; !atom.whole) atom.whole = true, atom.whole_for = node;
  }

  /// `node` equates two rows of atoms.
  void join(std::vector<int> a, std::vector<int> b, int node) {
    auto flatten = [&](std::vector<int>& row) {
      std::vector<int> out;
      for (int id : row)
        for (int leaf : leaves(id)) out.push_back(leaf);
      row = std::move(out);
    };
    for (flatten(a), flatten(b); !a.empty() && !b.empty(); flatten(a), flatten(b)) {
      const int x = a.front(), y = b.front();
      const int64_t p = (*this)[x].size, q = (*this)[y].size;
      if (p == q) {
        unite(x, y);
        a.erase(a.begin());
        b.erase(b.begin());
      } else if (p < q && q % p == 0) {
        split(y, p);
      } else if (q < p && p % q == 0) {
        split(x, q);
      } else {
        break;
      }
    }
    for (const std::vector<int>* rest : {&a, &b})
      for (int id : *rest) mark_whole(id, node);
  }

 private:
  void unite(int a, int b) {
    a = root(a), b = root(b);
    if (a == b) return;
    Atom &kept = atoms_[static_cast<size_t>(a)], &gone = atoms_[static_cast<size_t>(b)];
    gone.parent = a;
    if (gone.whole && (!kept.whole || gone.whole_for < kept.whole_for)) kept.whole_for = gone.whole_for;
    kept.whole |= gone.whole;
  }
  void split(int id, int64_t major) {
    id = root(id);
    const Atom atom = atoms_[static_cast<size_t>(id)];
    const int first = make(major), second = make(atom.size / major);
    atoms_[static_cast<size_t>(id)].first = first;
    atoms_[static_cast<size_t>(id)].second = second;
    for (int part : {first, second}) {
      (*this)[part].whole = atom.whole;
      (*this)[part].whole_for = atom.whole_for;
    }
  }

  std::vector<Atom> atoms_;
};

class Seeding {
 public:
  Seeding(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const AxisId> axes, Recipe recipe,
          std::span<const AxisId> expert_axes = {})
      : graph_(graph),
        ops_(ops),
        mesh_(mesh),
        axes_(axes.begin(), axes.end()),
        expert_axes_(expert_axes.begin(), expert_axes.end()),
        recipe_(recipe) {
    find_weights();
    dims_.resize(static_cast<size_t>(graph.value_count()));
    for (ValueId id = 0; id < graph.value_count(); ++id) {
      const auto& dims = graph.value(id).type.dims;
      if (!dims) continue;
      for (const Dim& dim : *dims)
        dims_[static_cast<size_t>(id)].push_back(dim.is_constant() && dim.constant() > 0 ? atoms_.make(dim.constant())
                                                                                         : -1);
    }
  }

  ShardSeeds run() {
    follow_all();
    for (ValueId id : stacks_) give_out(dims(id)[0]);
    for (const Node& node : graph_.nodes)
      for (ValueId id : node.inputs)
        if (id != no_value && graph_.value(id).constant && is_weight(id)) cut(id);
    ShardSeeds out;
    for (const Node& node : graph_.nodes)
      for (ValueId id : node.inputs) {
        if (id == no_value || !graph_.value(id).constant || out.contains(id)) continue;
        if (Sharding sharding = sharding_of(id); !sharding.is_replicated()) out[id] = std::move(sharding);
      }
    return out;
  }

  std::map<ValueId, std::string> why_whole(const ShardSeeds& where) {
    follow_all();
    std::map<ValueId, std::string> out;
    for (const Node& node : graph_.nodes)
      for (ValueId id : node.inputs) {
        if (id == no_value || !graph_.value(id).constant || out.contains(id) || !is_weight(id)) continue;
        const auto long_dims = std::count_if(dims(id).begin(), dims(id).end(),
                                             [&](int dim) { return dim >= 0 && !atoms_.leaves(dim).empty(); });
        if (long_dims < 2) continue;  // biases and the like follow their weights
        auto found = where.find(id);
        const Sharding now = found == where.end() ? Sharding::replicated(dims(id).size()) : found->second;
        if (const AxisList open = without(now.axes()); !open.empty()) out.emplace(id, obstacles(id, now, open[0]));
      }
    return out;
  }

 private:
  /// Why no dim of a weight can be sharded by one more axis.
  std::string obstacles(ValueId id, const Sharding& now, AxisId axis) {
    std::vector<std::string> out;
    for (size_t d = 0; d < dims(id).size(); ++d) {
      const int dim = dims(id)[d];
      const std::vector<int> leaves = dim < 0 ? std::vector<int>{} : atoms_.leaves(dim);
      if (leaves.empty()) continue;
      const int64_t free = free_size(dim), size = (*graph_.value(id).type.dims)[d].constant(),
                    parts = mesh_.blocks(now.dims[d]) * mesh_.size(axis);
      if (const Atoms::Atom& first = atoms_[leaves[0]]; first.whole)
        out.push_back(cat("dim ", d, ": ", size, " is needed whole by ",
                          describe(graph_, graph_.nodes[static_cast<size_t>(first.whole_for)])));
      else if (free % parts)
        out.push_back(free == size ? cat("dim ", d, ": ", size, " is no multiple of ", parts)
                                   : cat("dim ", d, ": ", size, " is ", free, " parts, no multiple of ", parts));
      else return "the seeds leave it so";
    }
    return join(out, "; ");
  }

  /// The requested axes that are not used yet.
  AxisList without(const AxisList& used) const {
    AxisList out;
    for (AxisId axis : axes_)
      if (std::find(used.begin(), used.end(), axis) == used.end()) out.push_back(axis);
    return out;
  }

  void follow_all() {
    for (now_ = 0; now_ < static_cast<int>(graph_.nodes.size()); ++now_)
      follow(graph_.nodes[static_cast<size_t>(now_)]);
    for (int dim : feature_dims_)
      if (dim >= 0 && !atoms_.leaves(dim).empty()) features_.insert(atoms_.leaves(dim));
  }

  /// Constants, and values made of them and of trained parts: a weight with its adapter.
  void find_weights() {
    of_weights_.resize(static_cast<size_t>(graph_.value_count()));
    for (ValueId id = 0; id < graph_.value_count(); ++id)
      of_weights_[static_cast<size_t>(id)] = graph_.value(id).constant != nullptr;
    std::set<ValueId> states;
    for (const Node& node : graph_.nodes) {
      if (is_state(node)) states.insert(node.outputs[0]);
      const auto& in = node.inputs;
      if (std::none_of(in.begin(), in.end(), [&](ValueId id) { return is_of_weights(id); }) ||
          !std::all_of(in.begin(), in.end(),
                       [&](ValueId id) { return id == no_value || is_of_weights(id) || states.contains(id); }))
        continue;
      for (ValueId id : node.outputs)
        if (id != no_value) of_weights_[static_cast<size_t>(id)] = true;
    }
  }
  bool is_of_weights(ValueId id) const { return id != no_value && of_weights_[static_cast<size_t>(id)]; }

  /// Tables of angles, slopes and the like are constants too, but too small to shard: a weight has a dim of features,
  /// i.e. of constants that products sum over.
  void find_features(const Node& node, const NodeRule& of) {
    const DimsRule& rule = of.rule;
    for (const FactorUse& use : of.uses) {
      if (!use.contracted()) continue;
      std::vector<ValueId> multiplied;
      for (size_t k = 0; k < rule.operands.size(); ++k)
        for (const RuleDim& dim : rule.operands[k].dims)
          for (const Factor& factor : dim.factors)
            if (factor.name == use.factor.name) multiplied.push_back(node.inputs[k]);
      if (multiplied.size() < 2) continue;
      for (ValueId id : multiplied)
        if (is_of_weights(id)) feature_dims_.insert(feature_dims_.end(), dims(id).begin(), dims(id).end());
    }
  }
  /// Stacks of matrices: an index operand that is not a weight selects one of them (as with a table's row), and the
  /// kernel sums over another dim.
  void find_stacks(const Node& node, const NodeRule& of) {
    const DimsRule& rule = of.rule;
    std::set<std::string> chosen, summed;
    for (const FactorUse& use : of.uses)
      if (use.contracted()) (use.factor.offset ? chosen : summed).insert(use.factor.name);
    auto has = [](const RuleDim& dim, const std::set<std::string>& names) {
      return std::any_of(dim.factors.begin(), dim.factors.end(),
                         [&](const Factor& factor) { return names.contains(factor.name); });
    };
    for (size_t k = 0; k < rule.operands.size(); ++k)
      if (node.inputs[k] != no_value && !is_of_weights(node.inputs[k]))
        for (const RuleDim& dim : rule.operands[k].dims)
          for (const Factor& factor : dim.factors) chosen.erase(factor.name);
    for (size_t k = 0; k < rule.operands.size(); ++k)
      if (const auto& own = rule.operands[k].dims;
          own.size() > 1 && has(own[0], chosen) &&
          std::any_of(own.begin() + 1, own.end(), [&](const RuleDim& dim) { return has(dim, summed); }))
        stacks_.insert(node.inputs[k]);
  }
  bool is_weight(ValueId id) {
    return std::any_of(dims(id).begin(), dims(id).end(),
                       [&](int dim) { return dim >= 0 && features_.contains(atoms_.leaves(dim)); });
  }

  const std::vector<int>& dims(ValueId id) const { return dims_[static_cast<size_t>(id)]; }

  void mark_whole(ValueId id) {
    if (id == no_value) return;
    for (int atom : dims(id))
      if (atom >= 0) atoms_.mark_whole(atom, now_);
  }

  void follow(const Node& node) {
    if (is_state(node)) return;  // it is sharded as its readers need
    const std::optional<NodeRule> found = rule_of(graph_, ops_, node);
    if (!found) {
      for (ValueId id : node.inputs) mark_whole(id);
      for (ValueId id : node.outputs) mark_whole(id);
      return;
    }
    const DimsRule& rule = found->rule;
    std::map<std::string, int, std::less<>> factors;
    for (size_t k = 0; k < rule.operands.size(); ++k) tensor(rule.operands[k], node.inputs[k], found->sizes, factors);
    for (size_t k = 0; k < rule.results.size(); ++k) tensor(rule.results[k], node.outputs[k], found->sizes, factors);
    find_features(node, *found);
    find_stacks(node, *found);
  }

  void tensor(const RuleTensor& rule, ValueId id, const FactorSizes& sizes,
              std::map<std::string, int, std::less<>>& factors) {
    if (id == no_value || rule.dims.size() != dims(id).size()) return mark_whole(id);
    for (size_t d = 0; d < rule.dims.size(); ++d) {
      const int atom = dims(id)[d];
      if (atom < 0) continue;
      std::vector<int> parts;
      bool known = true;
      for (const Factor& factor : rule.dims[d].factors) {
        auto size = sizes.find(factor.name);
        known = known &&
                (factor.fixed || (size != sizes.end() && size->second.is_constant() && size->second.constant() > 0));
        if (!known) break;
        auto [made, fresh] = factors.try_emplace(factor.name, -1);
        if (fresh) made->second = atoms_.make(factor.fixed ? factor.fixed : size->second.constant());
        parts.push_back(made->second);
      }
      if (!known) {
        atoms_.mark_whole(atom, now_);
        continue;
      }
      atoms_.join({atom}, parts, now_);
      for (const Factor& factor : rule.dims[d].factors)
        if (factor.whole || factor.fixed) atoms_.mark_whole(factors.find(factor.name)->second, now_);
    }
  }

  /// The axes that shard an atom's row already: those of its first atoms, as long as each is split completely.
  AxisList axes_of(int dim) {
    AxisList out;
    if (dim < 0) return out;
    for (int leaf : atoms_.leaves(dim)) {
      const Atoms::Atom& atom = atoms_[leaf];
      out.insert(out.end(), atom.axes.begin(), atom.axes.end());
      if (mesh_.blocks(atom.axes) != atom.size) break;
    }
    return out;
  }

  Sharding sharding_of(ValueId id) {
    Sharding out;
    AxisList used;
    for (int dim : dims(id)) {
      AxisList axes = axes_of(dim);
      auto again = std::find_if(axes.begin(), axes.end(),
                                [&](AxisId axis) { return std::find(used.begin(), used.end(), axis) != used.end(); });
      axes.erase(again, axes.end());
      used.insert(used.end(), axes.begin(), axes.end());
      out.dims.push_back(std::move(axes));
    }
    return out;
  }

  /// Shards a stack's first dim by the axes of experts, the innermost that divide it.
  void give_out(int dim) {
    AxisList given;
    for (auto axis = expert_axes_.rbegin(); axis != expert_axes_.rend() && axes_of(dim).empty(); ++axis)
      if (free_size(dim) % (mesh_.blocks(given) * mesh_.size(*axis)) == 0) given.insert(given.begin(), *axis);
    assign(dim, std::move(given));
  }

  /// Shards the atoms of the weight's longest free dim by the axes that the weight lacks.
  void cut(ValueId id) {
    if (dims(id).size() < 2) return;  // biases and the like follow their weights
    AxisList open = without(sharding_of(id).axes());
    int best = -1;
    int64_t most = 1;
    for (size_t d = 0; d < dims(id).size(); ++d) {
      const int dim = dims(id)[d];
      if (dim < 0) continue;
      const bool stack = recipe_ == Recipe::expert && d == 0 && stacks_.contains(id);
      const int64_t size = stack ? std::numeric_limits<int64_t>::max() : free_size(dim);
      if (free_size(dim) > 1 && size > most) best = dim, most = size;
    }
    if (best >= 0) assign(best, std::move(open));
  }

  /// The maximum number of shards of a dim.
  int64_t free_size(int dim) {
    int64_t out = 1;
    for (int leaf : atoms_.leaves(dim)) {
      if (atoms_[leaf].whole) break;
      out *= atoms_[leaf].size;
    }
    return out;
  }

  void assign(int dim, AxisList open) {
    for (int leaf : atoms_.leaves(dim)) {
      Atoms::Atom& atom = atoms_[leaf];
      if (atom.whole) return;
      for (size_t i = 0; i < open.size();) {
        const int64_t left = atom.size / mesh_.blocks(atom.axes);
        if (left % mesh_.size(open[i]) == 0) {
          atom.axes.push_back(open[i]);
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      if (mesh_.blocks(atom.axes) != atom.size) return;
    }
  }

  const Graph& graph_;
  const OpSet& ops_;
  const Mesh& mesh_;
  const AxisList axes_, expert_axes_;
  const Recipe recipe_;
  Atoms atoms_;
  int now_ = 0;                         ///< the current node
  std::vector<std::vector<int>> dims_;  ///< of each value; -1 for a symbolic size
  std::vector<int> feature_dims_;
  std::set<std::vector<int>> features_;  ///< the same by their atoms
  std::set<ValueId> stacks_;
  std::vector<bool> of_weights_;  ///< by value
};

}  // namespace

ShardSeeds recipe_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const AxisId> axes,
                        Recipe recipe, std::span<const AxisId> expert_axes) {
  return Seeding(graph, ops, mesh, axes, recipe, expert_axes).run();
}

std::map<ValueId, std::string> why_whole(const Graph& graph, const OpSet& ops, const Mesh& mesh,
                                         std::span<const AxisId> axes, const ShardSeeds& where) {
  return Seeding(graph, ops, mesh, axes, Recipe::tensor).why_whole(where);
}

}  // namespace plait
