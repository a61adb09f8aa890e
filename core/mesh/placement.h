#pragma once
// One node on a mesh: which factors of its dims rule are cut by what, and where its operands and results live then.
// Written once for all ops; nothing here knows one.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/mesh/sharding.h"

namespace plait {

/// By factor, the axes that cut it; an axis is given to one factor at most.
using FactorAxes = std::map<std::string, AxisList, std::less<>>;

struct Placement {
  std::vector<Sharding> operands;  ///< where each must be; nothing is pending in them
  std::vector<Sharding> results;   ///< where each is made, and what it owes
};

/// The rule of one node (as rule_of gives it) with the sizes of its factors.
struct NodeRule {
  DimsRule rule;
  FactorSizes sizes;
};
/// nullopt when its op has no rule for it, and for nodes with bodies: such a node gets whole operands.
std::optional<NodeRule> rule_of(const Graph& graph, const OpSet& ops, const Node& node);
/// Of all nodes of a graph.
using NodeRules = std::vector<std::optional<NodeRule>>;
NodeRules rules_of(const Graph& graph, const OpSet& ops);

/// Throws nothing; nullopt, and a reason in `why` (if given), when a factor that must be whole is cut, when sizes do not
/// divide, or when a compound dim would be held in strides: a factor is cut though one before it in "(g r d)" is not
/// down to one element.
std::optional<Placement> place(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh,
                               std::string* why = nullptr);

/// Lets an operand's pending sums pass the node: the results owe them then. Of several operands in which the op is linear
/// alone ("*") one may pass a sum along an axis; of those in which it is linear together ("+") all must owe it. Returns
/// the axes of `owed[k]`, by operand, that may stay unpaid; the axes that the node itself is cut by do not pass.
std::vector<AxisList> passing(const DimsRule& rule, const std::vector<std::vector<Pending>>& owed,
                              const FactorAxes& axes);

/// Every way to give each sub-axis of the mesh to a factor or to none for which `place` finds a placement, in a fixed
/// order, the one that cuts nothing first. Lists of several axes come in every order.
void each_placement(const NodeRule& node, const Mesh& mesh,
                    const std::function<void(const FactorAxes&, const Placement&)>& visit);

/// Of how many ranks' parts a result is combined: means divide by it.
int64_t summands(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh);

/// Writes into the attributes of a node what a rank's kernel has to know: counts of heads and the like become those of its
/// shard (AttributeRow::counts), "offset" and "whole" say where its shard of an "@" factor begins and how long all of it
/// is, "shards" of how many ranks' parts the result is the sum.
void localize(Node& node, const OpSchema& schema, const NodeRule& rule, const FactorAxes& axes, const Mesh& mesh,
              int64_t rank);

}  // namespace plait
