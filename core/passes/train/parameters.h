#pragma once
// Parts of pass `train`.
#include <functional>

#include "core/passes/base/parameter_states.h"

namespace plait {

/// Makes a State of each weight that may be trained: float constants of more than one element, whole tensors of the
/// file (not constants among its nodes) or parts of them, that are combined with values from the token embeddings, or
/// are such a table. Equal weights become one State; tensors whose elements several values use in different ways
/// become a State in the file's layout, with the steps as nodes. `patterns`: names to take; empty: all. A State keeps
/// its constant's seed. Throws Error if there is none.
std::vector<Trainable> make_parameters(Graph& graph, PassContext& context, const std::vector<std::string>& patterns);


/// Shardings of what training writes, by key of the Store; empty on one rank.
using StatePlaces = std::map<std::string, Sharding, std::less<>>;

/// The dim of an input that is split over the `ranks` ranks of axis `data`: the tokens of a decoder's rows; the first
/// dim of a graph with its own loss, if it is the batch (prepare_own_loss). -1: replicated.
int spread_dim(const Graph& graph, ValueId input, int64_t ranks, const TrainingOptions& training);

/// Shards the graph that accumulates gradients for the context's rank, and returns the shardings of weights, sums and
/// optimizer state. Sums that are partial or sharded differently are reduced into a State of their own: the
/// parameter's key + ".reduced". The plan is the context's. `of_host`, unless null, is the graph for a host loss,
/// which adds to the same sums.
StatePlaces shard_training(Graph& graph, Graph* of_host, PassContext& context);
/// The same for a graph of States only.
void shard_states(Graph& graph, const CompileOptions& options, const StatePlaces& places);

/// No inputs; output 0 is the sum of the squares of all gradients, []. Partial sums are reduced. `counted`: whether a
/// parameter's squares count; empty: all do.
Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters, const StatePlaces& places,
                 const std::function<bool(const TrainedParameter&)>& counted = {});
/// Appends the norm's graph to one that accumulates gradients, both of one rank, and its outputs after the first
/// output.
Graph settle_graph(const OpSet& ops, Graph graph, const Graph& norm);
/// Inputs [], of the parameters' dtype: `scale` of the gradients, `rate`, and what depends on the step's number t:
/// for AdamW `correction1` and `correction2`, 1 - beta^t; for Adafactor `share`, t^beta2_decay, and `most`, 1 /
/// sqrt(t).
Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer, const StatePlaces& places);

/// The Linear at the end of the graph, and the ops after it: logits = cap tanh(scale (x w^T + share bias) / cap).
struct Head {
  int32_t node = -1;  ///< -1: the graph does not end like this
  bool fits = true;   ///< false: there are other ops, which the fields below do not describe
  double scale = 1, softcap = 0;
  ValueId bias = no_value;  ///< of as many elements as w has rows
  double share = 1;
};
Head find_head(const Graph& graph);

}  // namespace plait
