#pragma once
// Pass shard: rewrites a global graph with shardings of its weights as the graph of ranks, with collectives.
//
// It uses no op names: the dims rule of a node defines its placements. Nodes are taken in order; each is placed where
// redistributing its operands and reducing its partial results moves the fewest bytes; operands are redistributed
// once per target. Weights keep their seeds. As in Shardy and GSPMD (Xu et al. 2021) shardings propagate from
// annotations, with partial sums as a state of values (OneFlow, Yuan et al. 2021).
#include <map>
#include <string>
#include <vector>

#include "core/passes/base/pass.h"

namespace plait {

enum class Recipe {
  tensor,  ///< as Megatron (Shoeybi et al. 2019): heads, hidden features, the vocabulary
  expert,  ///< experts stacked in one weight; all others as `tensor`
};

/// Shards every weight by `axes` along a dim that no op needs whole: equal dims (a feed-forward layer's hidden
/// features in its three weights, the heads of queries, keys and values) are found by following the dims rules
/// through the graph, and are sharded alike, as far as they divide. Weights that do not divide are replicated. Stacks
/// of experts are first sharded over `expert_axes`, by the innermost that divide, so that ranks with the experts of
/// one layer are neighbours. A stack is found by its rule: a product whose matrix an index selects.
ShardSeeds recipe_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const AxisId> axes,
                        Recipe recipe = Recipe::tensor, std::span<const AxisId> expert_axes = {});

/// The recipe that texts of `seeds_of` name, "tensor" if none does. Throws Error(invalid_argument) for two, and for an unknown text.
std::string recipe_of(std::span<const std::string> texts);

/// Seeds for a user's texts. Each is one of
///   tensor, expert     a recipe (see Recipe); `tensor` by default
///   data               nothing is sharded
///   sequence           additionally shards tokens over the axis tensor between products (`sequence_axes`; sequence
///                      parallel, Korthikanti et al. 2022)
///   expert_data        additionally, in training, shards experts over the axis data (`expert_axes` above)
///   search             what `search_seeds` finds (core/passes/shard/search.h)
///   PATTERN=SHARDING   the sharding of weights whose names match PATTERN, overriding recipes; the last match wins
/// In a PATTERN "*" matches any letters and "?" one. Names are those of the file's initializers, and of values; a
/// SHARDING (`parse_sharding`) is for the dims in the raised graph, where a Linear's weight is [outputs, inputs];
/// constants with another number of dims are skipped. Weights are sharded along the axis tensor; if `training` also
/// along `data`, over which steps are joint. Throws Error(invalid_argument) for impossible requests, and if nothing
/// is sharded along the mesh's axis `tensor`.
ShardSeeds seeds_of(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const std::string> texts,
                    bool training = false);

/// By value, for weights that are replicated along some of `axes`: the reason, "50257 is no multiple of 2". `where`
/// has their shardings.
std::map<ValueId, std::string> why_whole(const Graph& graph, const OpSet& ops, const Mesh& mesh,
                                         std::span<const AxisId> axes, const ShardSeeds& where);

struct ShardSettings {
  const NodeRules* rules = nullptr;  ///< of the graph's nodes, for repeated sharding
  /// Axes along which a partial sum may be reduce-scattered over a dim of open size, i.e. tokens, instead of
  /// all-reduced.
  AxisList sequence = {};
  /// Storage shardings of seeded States, if they have more shards (ZeRO-3, FSDP). They are gathered for each node
  /// that reads them, so that not all are in memory at once.
  ShardSeeds stored = {};
};

/// Rewrites the graph into what ranks run, one graph for all (SPMD): `at_rank` (core/mesh/placement.h) fills in a rank.
/// Inputs without a seed, and outputs, are replicated; an output that is a State's new value keeps the State's
/// sharding. Graphs must be inferred.
/// Throws Error(invalid_argument) for seeds that do not fit their values. A State with `sum` takes over the partial
/// axes of its first summand: it is then a partial sum over the ranks' States, as the plan's `states` show.
ShardPlan shard(Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& seeds,
                const ShardSettings& settings = {});

/// The pass, for a recognised decoder on several ranks; stores the plan in `context`.
void shard(Graph& graph, PassContext& context);

/// For the text "sequence" among `texts`: the axis tensor, as `sequence` above; the symbol t of a decoder's graph
/// then counts the tokens of one rank, so a step's tokens are a multiple of the ranks. Otherwise none.
AxisList sequence_axes(Graph& graph, const Mesh& mesh, std::span<const std::string> texts);

/// Sets the symbols' typical sizes for placement: a step of a few sequences, some with requested rows.
void set_typical_step(Graph& graph);

}  // namespace plait
