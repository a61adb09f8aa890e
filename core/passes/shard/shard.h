#pragma once
// Pass shard: one global graph, annotated with where its weights live, becomes the graph of one rank, with collectives.
//
// Nothing here knows an op: what a node may do is what its dims rule says. Nodes are taken in order; each is placed where
// moving its operands there, and paying what its result owes, moves the fewest bytes; operands are moved once for each
// place. Weights stay where the seeds say. After Shardy and GSPMD (Xu et al. 2021) in propagating from annotations, with
// partial sums as a state of values (OneFlow, Yuan et al. 2021).
#include <map>
#include <string>
#include <vector>

#include "core/passes/base/pass.h"

namespace plait {

enum class Recipe {
  tensor,  ///< as Megatron does (Shoeybi et al. 2019): heads, hidden features, the vocabulary
  expert,  ///< experts stacked in one weight; all else as `tensor`
};

/// Cuts every weight by `axes` along a dim that no op needs whole: sizes that are one and the same (a feed-forward layer's
/// hidden features in the three weights that have them, the heads of queries, keys and values) are found by following the
/// dims rules through the graph, and are cut alike, as far as they divide. What divides in no way stays whole.
/// Stacks of experts are given out over `expert_axes` first, by the innermost of them that divide: so those who share the
/// experts out are neighbours. A stack is found by its rule: a product of which a number chooses the matrix.
ShardSeeds recipe_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const AxisId> axes,
                        Recipe recipe = Recipe::tensor, std::span<const AxisId> expert_axes = {});

/// What a user's texts ask for. Each is one of
///   tensor, expert     a recipe (see Recipe); `tensor` where no text names another
///   data               nothing is cut
///   sequence           besides, tokens are shared out over the axis tensor between products (`sequence_axes`; sequence
///                      parallel, Korthikanti et al. 2022)
///   expert_data        besides, in training, experts are given out over the axis data (`expert_axes` above)
///   search             what `search_seeds` finds (core/passes/shard/search.h)
///   PATTERN=SHARDING   the weights whose names fit PATTERN live as SHARDING says, whatever the recipe; a later text goes before
///                      an earlier one
/// In a PATTERN "*" stands for any letters and "?" for one. Names are those of the file's initializers, and of values; a
/// SHARDING (`parse_sharding`) is of the dims that the raised graph has, where a Linear's weight is [outputs, inputs];
/// constants of another number of dims are left alone. Weights are cut along the axis tensor; along `data`, too, if `training`,
/// where its ranks take each step together. Throws Error(invalid_argument) for what cannot be done, and when nothing is cut
/// along the axis `tensor`, though the mesh has it.
ShardSeeds seeds_of(const Graph& graph, const OpSet& ops, const Mesh& mesh, std::span<const std::string> texts,
                    bool training = false);

/// Of weights that are held whole along some of `axes`: why, by value: "50257 is no multiple of 2". `where` says how they are
/// held.
std::map<ValueId, std::string> why_whole(const Graph& graph, const OpSet& ops, const Mesh& mesh,
                                         std::span<const AxisId> axes, const ShardSeeds& where);

struct ShardSettings {
  const NodeRules* rules = nullptr;  ///< those of the graph's nodes, for who shards it more than once
  /// Axes along which a sum may be paid into parts of a dim whose size is open, tokens that is, instead of into a whole on
  /// each rank.
  AxisList sequence = {};
  /// Of States that have a seed: where they are kept, if that is elsewhere, in more parts (ZeRO-3, FSDP). They are put
  /// together anew for each node that reads them, so that nobody holds all of them at once.
  ShardSeeds stored = {};
};

/// Rewrites the graph into what rank `rank` runs. Inputs without a seed, and outputs, are whole on every rank; an output
/// that is a State's new value stays where the State is. The plan is the same on every rank. Graphs must be inferred. Throws
/// Error(invalid_argument) for seeds that do not fit their values.
/// A State that is marked as a sum takes what the first summand owes upon itself: it is a sum of the ranks' States then, and
/// the plan's `states` say so.
ShardPlan shard(Graph& graph, const OpSet& ops, const Mesh& mesh, int64_t rank, const ShardSeeds& seeds,
                const ShardSettings& settings = {});

/// The pass, for a recognised decoder on several ranks; leaves the plan in `context`.
void shard(Graph& graph, PassContext& context);

/// For the text "sequence" among `texts`: the axis tensor, as `sequence` above; and the symbol t of a decoder's graph, the
/// tokens of a step, then counts those of one rank, so that a step has a multiple of them. Else none.
AxisList sequence_axes(Graph& graph, const Mesh& mesh, std::span<const std::string> texts);

/// Sets the symbols' typical sizes to those at which places are chosen: a step of a few sequences, of which some are read.
void set_typical_step(Graph& graph);

}  // namespace plait
