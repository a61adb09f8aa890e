#pragma once
// From a graph to a program: fusion, collectives in buckets and asynchronous, kernels and buffers, memory.
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "core/exec/program.h"
#include "core/passes/base/pass.h"

namespace plait {

void fuse(Graph& graph, PassContext& context);
void bucket(Graph& graph, PassContext& context);
void overlap(Graph& graph, PassContext& context);

/// Slots of programs that share them, and which of them the values of one graph are.
struct SlotValues {
  const std::vector<Slot>& slots;
  const std::map<ValueId, int32_t>& of_values;
};
/// Chooses kernels and buffers. `label` keeps the computed constants of programs that share a store apart. `slots`: values that
/// are slots, made by the graph's nodes or among its inputs; these are then no inputs of the program. Throws
/// Error(unsupported) when a node has no kernel.
std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label,
                               const SlotValues* slots = nullptr);
/// Lifetimes of buffers and their offsets in the arena. `of_ranks`: other ranks have the program too, so its fingerprint leaves out
/// where their blocks begin.
void plan(Program& program, bool of_ranks);

}  // namespace plait
