#pragma once
// Inference of ops with bodies, for core/graph/infer.cpp.
#include "core/graph/infer.h"

namespace plait {

/// Like infer_node, for an If, Loop or Scan that passed check_node. Throws Error without the node's name.
void infer_with_bodies(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge);

}  // namespace plait
