#pragma once
// Lowers a graph to a program: fusion, bucketed and asynchronous collectives, kernels and buffers, memory.
#include <memory>
#include <string_view>

#include "core/exec/program.h"
#include "core/passes/base/pass.h"

namespace plait {

void fuse(Graph& graph, PassContext& context);
void bucket(Graph& graph, PassContext& context);
void overlap(Graph& graph, PassContext& context);

/// Chooses kernels and buffers. `label` distinguishes computed constants of programs that share a Store. Throws
/// Error(unsupported) if a node has no kernel.
std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label);
/// Plans lifetimes of buffers and their offsets in the arena. `of_ranks`: other ranks have the program too, so its
/// fingerprint excludes where a rank's blocks begin.
void plan(Program& program, bool of_ranks);

}  // namespace plait
