#pragma once
// Lowers a graph to a program: fusion, bucketed and asynchronous collectives, kernels and buffers, memory.
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

/// The slots of programs that share them, and the slots of one graph's values.
struct SlotValues {
  const std::vector<Slot>& slots;
  const std::map<ValueId, int32_t>& of_values;
};
/// Chooses kernels and buffers. `label` distinguishes computed constants of programs that share a Store. `slots`: values
/// in slots, made by nodes or among the graph's inputs; such inputs are not inputs of the program. Throws
/// Error(unsupported) if a node has no kernel.
std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label,
                               const SlotValues* slots = nullptr);
/// Joins sums of ranks with the norms after them, where these are kernels of a device. No result changes.
void join_sums(Program& program);
/// Plans lifetimes of buffers and their offsets in the arena. `of_ranks`: other ranks have the program too, so its
/// fingerprint excludes where a rank's blocks begin.
void plan(Program& program, bool of_ranks);

}  // namespace plait
