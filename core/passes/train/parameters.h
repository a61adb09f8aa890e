#pragma once
// What pass `train` is made of.
#include <functional>

#include "core/passes/base/parameter_states.h"

namespace plait {

/// Makes a State of each weight that may be trained: constants of floats and of more than one element, whole tensors of
/// the file (not what it writes among its nodes) or parts of them, that meet what comes of the tokens' embeddings, or are
/// a table of such. Values that are one weight become one State; tensors of which several values hold the same elements in
/// different ways become a State of the tensor as the file has it, with its steps as nodes. `patterns`: names of those to
/// take; none: all. A State that stands for a constant has its seed.
std::vector<Trainable> make_parameters(Graph& graph, PassContext& context, const std::vector<std::string>& patterns);


/// By key of the Store, where the ranks have what training writes; empty on one rank.
using StatePlaces = std::map<std::string, Sharding, std::less<>>;

/// The dim of an input that the ranks of the axis `data`, `ranks` in number, have parts of: of a decoder's rows the tokens; of a
/// graph with a loss of its own the first, where that is the batch (prepare_own_loss). -1: all have all of it.
int spread_dim(const Graph& graph, ValueId input, int64_t ranks, const TrainingOptions& training);

/// Makes the graph that adds up gradients that of the context's rank, and says where it has weights and sums, and where the
/// optimizer is to have them and what it keeps. Where sums are made elsewhere, or ranks hold parts of them, the whole goes to
/// a State of its own: the parameter's key + ".reduced". The plan is the context's. `of_host`, unless null, is the graph whose
/// loss the host computes, which adds to the same sums.
StatePlaces shard_training(Graph& graph, Graph* of_host, PassContext& context);
/// The same for a graph of States alone.
void shard_states(Graph& graph, const CompileOptions& options, const StatePlaces& places);

/// No inputs; output 0 is the sum of the squares of all gradients, []. What ranks hold parts of becomes a whole. `counted`: whether
/// a parameter's squares count; empty: all do.
Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters, const StatePlaces& places,
                 const std::function<bool(const TrainedParameter&)>& counted = {});
/// The norm's graph behind one that adds up gradients, both of one rank. Its outputs stand behind the first of the other.
Graph settle_graph(const OpSet& ops, Graph graph, const Graph& norm);
/// Inputs [], of the parameters' dtype: `scale` of the gradients, `rate`, and what an optimizer needs of the step's number t:
/// AdamW `correction1` and `correction2`, 1 - beta^t; Adafactor `share`, t^beta2_decay, and `most`, 1 / sqrt(t).
Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer, const StatePlaces& places);

/// The Linear at the end of the graph, and what is done to its results: logits = cap tanh(scale (x w^T + share bias) / cap).
struct Head {
  int32_t node = -1;  ///< -1: the graph does not end so
  bool fits = true;   ///< false: more is done than that, of which what is below says nothing
  double scale = 1, softcap = 0;
  ValueId bias = no_value;  ///< of as many elements as w has rows
  double share = 1;
};
Head find_head(const Graph& graph);

}  // namespace plait
