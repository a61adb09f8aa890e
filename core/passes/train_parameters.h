#pragma once
// What pass `train` is made of.
#include "core/graph/graph_builder.h"
#include "core/passes/pass.h"

namespace plait {

/// Makes a State of each weight that may be trained: constants of floats and of more than one element, whole tensors of
/// the file or parts of them, that meet what comes of the tokens' embeddings, or are a table of such. Values that are one
/// weight become one State; tensors of which several values hold the same elements in different ways become a State of
/// the tensor as the file has it, with its steps as nodes. `patterns`: names of those to take; none: all.
std::vector<Trainable> make_parameters(Graph& graph, const PassContext& context,
                                       const std::vector<std::string>& patterns);

/// A State of f32 that begins as `initial`, or as zeros.
ValueId add_state(Graph& graph, GraphBuilder& builder, const std::string& key, const Shape& shape,
                  std::shared_ptr<const Constant> initial = nullptr);
/// The parameter's own.
ValueId add_parameter(Graph& graph, GraphBuilder& builder, const TrainedParameter& parameter);

/// The names of a constant: of the file's tensors that it is made of.
std::vector<std::string> names_of(const Constant& constant);
/// Whether no element of the file is in both. They are of one tensor.
bool are_apart(const Constant& a, const Constant& b);

/// No inputs; output 0 is the norm of all gradients as one vector, f32 [].
Graph norm_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters);
/// Inputs f32 []: `scale` of the gradients, `rate`, and of AdamW `correction1` and `correction2`.
Graph update_graph(const OpSet& ops, const std::vector<TrainedParameter>& parameters,
                   const OptimizerOptions& optimizer);

/// The Linear at the end of the graph, and what is done to its results: logits = cap tanh(scale x w^T / cap).
struct Head {
  int32_t node = -1;  ///< -1: the graph does not end so
  double scale = 1, softcap = 0;
};
Head find_head(const Graph& graph);

}  // namespace plait
