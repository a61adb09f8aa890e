#pragma once
// Wider floats for all values of a graph.
#include "core/graph/graph.h"

namespace plait {

/// Makes `to` of every narrower float: values, constants, attributes that name a dtype, and bodies. True if there was any.
/// Pass raise computes in f32 what a file computes in f16 or bf16: kernels are made for f32, and results are at least as
/// precise as the file's.
bool widen(Graph& graph, DType to);

}  // namespace plait
