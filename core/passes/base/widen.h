#pragma once
// Widens all floats of a graph.
#include "core/graph/graph.h"

namespace plait {

/// Converts every narrower float to `to`: values, constants, dtype attributes, and bodies. Returns whether there was
/// any. Pass raise computes in f32 what a file computes in f16 or bf16: kernels are made for f32, and results are at
/// least as precise as the file's.
bool widen(Graph& graph, DType to);

}  // namespace plait
