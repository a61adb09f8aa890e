#pragma once
// Passes of training, in the order of compile.cpp.
#include "core/passes/base/pass.h"

namespace plait {

void drop_cache(Graph& graph, PassContext& context);
void in_double(Graph& graph, PassContext& context);
void shard_rows(Graph& graph, PassContext& context);
/// For a graph with its own loss: that output becomes the only one, and its batch a multiple of the mesh's data
/// ranks. Throws Error: not_found if no output has that name, unsupported if it is not a single float.
void prepare_own_loss(Graph& graph, PassContext& context);
/// After Scans became Loops.
void capture_weights(Graph& graph, PassContext& context);
void train(Graph& graph, PassContext& context);
/// By value, of a graph that `train` made: whether it is a gradient or made of such, of which the loss's weights are the first;
/// of a graph with a loss of its own whether it is made after the loss.
std::vector<bool> backward_values(const Graph& graph);
void fuse_training(Graph& graph, PassContext& context);
void recompute(Graph& graph, PassContext& context);
void fuse_sums(Graph& graph, PassContext& context);

}  // namespace plait
