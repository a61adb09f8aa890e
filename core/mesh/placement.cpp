#include "core/mesh/placement.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

bool is_one(const Dim& dim) { return dim.is_constant() && dim.constant() == 1; }

const AxisList& axes_of(const FactorAxes& axes, const std::string& factor) {
  static const AxisList none;
  auto found = axes.find(factor);
  return found == axes.end() ? none : found->second;
}

/// The first reason why the factors cannot be cut this way; empty if they can.
std::string obstacle(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh) {
  for (const FactorUse& use : node.uses) {
    const Factor& factor = use.factor;
    const AxisList& cut = axes_of(axes, factor.name);
    if (cut.empty()) continue;
    if (factor.whole || factor.fixed) return cat("factor ", factor.name, " must be whole");
    auto size = node.sizes.find(factor.name);
    if (size == node.sizes.end()) return cat("the size of factor ", factor.name, " is not known");
    if (!divides(size->second, mesh.blocks(cut)))
      return cat("factor ", factor.name, " does not divide into ", mesh.blocks(cut), " parts");
  }
  return {};
}

/// The axes of a compound dim: those of its factors, concatenated. nullopt if a block would not be contiguous.
std::optional<AxisList> axes_of(const RuleDim& dim, const NodeRule& node, const FactorAxes& axes, const Mesh& mesh) {
  AxisList out;
  auto is_cut = [&](const Factor& factor) { return !axes_of(axes, factor.name).empty(); };
  const auto last = std::find_if(dim.factors.rbegin(), dim.factors.rend(), is_cut).base();
  bool down_to_one = true;  // all factors so far
  for (auto at = dim.factors.begin(); at != last; ++at) {
    const Factor& factor = *at;
    const AxisList& cut = axes_of(axes, factor.name);
    if (!cut.empty() && !down_to_one) return std::nullopt;
    out.insert(out.end(), cut.begin(), cut.end());
    if (at + 1 == last) break;
    auto size = node.sizes.find(factor.name);
    const Dim whole = factor.fixed ? Dim(factor.fixed) : size == node.sizes.end() ? Dim(0) : size->second;
    std::optional<Dim> local = whole.divided(Dim(mesh.blocks(cut)));
    down_to_one = down_to_one && local && is_one(*local);
  }
  return out;
}

std::optional<Sharding> sharding_of(const RuleTensor& tensor, const NodeRule& node, const FactorAxes& axes,
                                    const Mesh& mesh) {
  Sharding out;
  for (const RuleDim& dim : tensor.dims) {
    std::optional<AxisList> cut = axes_of(dim, node, axes, mesh);
    if (!cut) return std::nullopt;
    out.dims.push_back(std::move(*cut));
  }
  return out;
}

/// Pending axes of results: those of cut factors that no result has. (A factor of another result is no sum: keys of
/// KvWrite do not depend on how the values are cut.)
std::vector<AxisId> contracted(const NodeRule& node, const FactorAxes& axes) {
  std::vector<AxisId> out;
  for (const FactorUse& use : node.uses)
    if (use.contracted()) {
      const AxisList& cut = axes_of(axes, use.factor.name);
      out.insert(out.end(), cut.begin(), cut.end());
    }
  std::sort(out.begin(), out.end());
  return out;
}

/// Pending axes of a result with "{all}" in the rule: those of every cut factor that it lacks.
std::vector<AxisId> lacked(const RuleTensor& result, const FactorAxes& axes) {
  std::vector<AxisId> out;
  for (const auto& [name, cut] : axes) {
    const bool has = std::any_of(result.dims.begin(), result.dims.end(), [&, &name = name](const RuleDim& dim) {
      return std::any_of(dim.factors.begin(), dim.factors.end(),
                         [&](const Factor& factor) { return factor.name == name; });
    });
    if (!has) out.insert(out.end(), cut.begin(), cut.end());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::optional<NodeRule> rule_of(const Graph& graph, const OpSet& ops, const Node& node) {
  const OpSchema* schema = ops.find(node.op);
  if (!schema || !node.bodies.empty()) return std::nullopt;
  auto types = [&](const std::vector<ValueId>& ids) {
    std::vector<Type> out;
    for (ValueId id : ids) out.push_back(id == no_value ? Type{} : graph.value(id).type);
    return out;
  };
  const std::vector<Type> in = types(node.inputs), out = types(node.outputs);
  // A rank's part of sizes that are known only when they are made is not computed.
  if (schema->target >= 0 && !out.empty() && out[0].dims && !follow_from_inputs(graph, *out[0].dims))
    return std::nullopt;
  std::optional<DimsRule> rule = rule_of(*schema, node, in, out);
  if (!rule) return std::nullopt;
  FactorSizes sizes = factor_sizes(*rule, dims_list(in), dims_list(out), schema);
  return NodeRule(std::move(*rule), std::move(sizes));
}

NodeRules rules_of(const Graph& graph, const OpSet& ops) {
  NodeRules out;
  for (const Node& node : graph.nodes) out.push_back(rule_of(graph, ops, node));
  return out;
}

std::optional<Placement> place(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh, std::string* why) {
  auto refuse = [&](std::string reason) {
    if (why) *why = std::move(reason);
    return std::nullopt;
  };
  Placement out;
  if (axes.empty()) {  // the most frequent case
    for (const RuleTensor& operand : node.rule.operands)
      out.operands.push_back(Sharding::replicated(operand.dims.size()));
    for (const RuleTensor& result : node.rule.results)
      out.results.push_back(Sharding::replicated(result.dims.size()));
    return out;
  }
  if (std::string reason = obstacle(node, axes, mesh); !reason.empty()) return refuse(std::move(reason));
  for (const RuleTensor& operand : node.rule.operands) {
    std::optional<Sharding> one = sharding_of(operand, node, axes, mesh);
    if (!one) return refuse("a shard would not be contiguous");
    out.operands.push_back(std::move(*one));
  }
  const std::vector<AxisId> owed = contracted(node, axes);
  for (const RuleTensor& result : node.rule.results) {
    std::optional<Sharding> one = sharding_of(result, node, axes, mesh);
    if (!one) return refuse("a shard of the result would not be contiguous");
    for (AxisId axis : result.all ? lacked(result, axes) : owed) one->pending.push_back({axis, result.pending});
    out.results.push_back(std::move(*one));
  }
  return out;
}

std::vector<AxisList> passing(const DimsRule& rule, const std::vector<std::vector<Pending>>& owed,
                              const FactorAxes& axes) {
  std::vector<AxisList> out(rule.operands.size());
  std::vector<AxisId> taken;
  for (const auto& [factor, cut] : axes) taken.insert(taken.end(), cut.begin(), cut.end());
  auto owes = [&](size_t k, AxisId axis) {
    return std::find(owed[k].begin(), owed[k].end(), Pending{axis, PendingKind::sum}) != owed[k].end();
  };
  for (size_t k = 0; k < rule.operands.size(); ++k) {
    const Linearity linear = rule.operands[k].linear;
    for (const Pending& one : owed[k]) {
      if (one.kind != PendingKind::sum || linear == Linearity::none) continue;
      if (std::find(taken.begin(), taken.end(), one.axis) != taken.end()) continue;
      bool passes = true;
      for (size_t other = 0; other < rule.operands.size(); ++other) {
        const bool together = rule.operands[other].linear == Linearity::together;
        if (linear == Linearity::together) passes = passes && (!together || owes(other, one.axis));
        else if (other < k)
          passes = passes && std::find(out[other].begin(), out[other].end(), one.axis) == out[other].end();
      }
      if (passes) out[k].push_back(one.axis);
    }
  }
  return out;
}

namespace {

/// Assigns the axes one by one, recursively.
void give(const NodeRule& node, const Mesh& mesh, const std::vector<std::string>& names, AxisId axis,
          FactorAxes& axes, const std::function<void(const FactorAxes&, const Placement&)>& visit) {
  if (axis == mesh.sub_axes()) {
    if (std::optional<Placement> placement = place(node, axes, mesh)) visit(axes, *placement);
    return;
  }
  give(node, mesh, names, axis + 1, axes, visit);
  for (const std::string& name : names) {
    const size_t places = axes_of(axes, name).size() + 1;
    for (size_t at = 0; at < places; ++at) {
      FactorAxes more = axes;
      AxisList& list = more[name];
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), axis);
      give(node, mesh, names, axis + 1, more, visit);
    }
  }
}

}  // namespace

void each_placement(const NodeRule& node, const Mesh& mesh,
                    const std::function<void(const FactorAxes&, const Placement&)>& visit) {
  std::vector<std::string> names;
  for (const FactorUse& use : node.uses)
    if (!use.factor.whole && !use.factor.fixed) names.push_back(use.factor.name);
  FactorAxes axes;
  give(node, mesh, names, 0, axes, visit);
}

int64_t summands(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh) {
  return mesh.blocks(contracted(node, axes));
}

}  // namespace plait
