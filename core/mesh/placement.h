#pragma once
// Placement of one node on a mesh: the mesh axes that cut the factors of its dims rule, and the resulting shardings
// of operands and results. Generic over ops.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/mesh/sharding.h"

namespace plait {

/// By factor, the axes that cut it; an axis cuts at most one factor.
using FactorAxes = std::map<std::string, AxisList, std::less<>>;

struct Placement {
  std::vector<Sharding> operands;  ///< required shardings, without pending axes
  std::vector<Sharding> results;   ///< resulting shardings, with pending axes
};

/// A node's rule (as rule_of returns it) with the sizes of its factors.
struct NodeRule {
  NodeRule() = default;
  NodeRule(DimsRule of, FactorSizes with) : rule(std::move(of)), sizes(std::move(with)), uses(factors(rule)) {}
  DimsRule rule;
  FactorSizes sizes;
  std::vector<FactorUse> uses;  ///< its factors
};
/// nullopt for nodes without a rule or with bodies: these need replicated operands.
std::optional<NodeRule> rule_of(const Graph& graph, const OpSet& ops, const Node& node);
/// By node of a graph.
using NodeRules = std::vector<std::optional<NodeRule>>;
NodeRules rules_of(const Graph& graph, const OpSet& ops);

/// nullopt, and a reason in `why` (if given), if a factor that must stay whole is cut, sizes do not divide, or a
/// compound dim would be strided: a factor of "(g r d)" is cut though an earlier one has more than one element left.
/// Does not throw.
std::optional<Placement> place(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh,
                               std::string* why = nullptr);

/// Propagates pending sums of operands through the node to its results. Of operands in which the op is linear
/// separately ("*") one may pass a sum along an axis; of those in which it is linear jointly ("+") all must have it.
/// Returns the axes of `owed[k]`, by operand, that may stay pending; axes that cut the node itself do not pass.
std::vector<AxisList> passing(const DimsRule& rule, const std::vector<std::vector<Pending>>& owed,
                              const FactorAxes& axes);

/// Enumerates all placements: each sub-axis cuts one factor or none, in a fixed order, the uncut one first. Lists of
/// several axes come in every order.
void each_placement(const NodeRule& node, const Mesh& mesh,
                    const std::function<void(const FactorAxes&, const Placement&)>& visit);

/// The number of ranks whose parts a result combines; means divide by it.
int64_t summands(const NodeRule& node, const FactorAxes& axes, const Mesh& mesh);

/// Rewrites a node's attributes for the graph of ranks: counts of heads and the like become the shard's
/// (AttributeRow::counts), "whole" gives the full size of an "@" factor and "offset_axes" what cuts it, "shards" the
/// number of ranks whose parts the result sums.
void localize(Node& node, const OpSchema& schema, const NodeRule& rule, const FactorAxes& axes, const Mesh& mesh);

// The graph of ranks is one graph for all (SPMD). What differs is filled in last: where a rank's blocks begin.
/// Whether a node has "offset_axes".
bool depends_on_rank(const Node& node);
/// The node with "offset", the start of the rank's shard, instead of "offset_axes".
Node at_rank(Node node, const Mesh& mesh, int64_t rank);
/// The constant with slices instead of parts; `constant` itself if it has none. May be null.
std::shared_ptr<const Constant> at_rank(std::shared_ptr<const Constant> constant, const Mesh& mesh, int64_t rank);

}  // namespace plait
