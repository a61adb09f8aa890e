#pragma once
// From a graph to a program: fusion, collectives in buckets and asynchronous, kernels and buffers, memory.
#include <memory>
#include <string_view>

#include "core/exec/program.h"
#include "core/passes/base/pass.h"

namespace plait {

void fuse(Graph& graph, PassContext& context);
void bucket(Graph& graph, PassContext& context);
void overlap(Graph& graph, PassContext& context);

/// Chooses kernels and buffers. `label` keeps the computed constants of programs that share a store apart. Throws
/// Error(unsupported) when a node has no kernel.
std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label);
/// Lifetimes of buffers and their offsets in the arena. `of_ranks`: other ranks have the program too, so its fingerprint leaves out
/// where their blocks begin.
void plan(Program& program, bool of_ranks);

}  // namespace plait
