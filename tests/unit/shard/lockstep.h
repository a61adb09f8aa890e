#pragma once
// The graph of a mesh's ranks, run node by node in one thread: what pass `shard` makes, without executors or
// communicators.
#include <map>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/passes/base/decoder.h"
#include "tests/unit/support/sharded.h"

namespace plait::test {

/// The graph that `raise` makes of a file's, before it is fused; and what it recognised.
struct Raised {
  Graph graph;
  Decoder decoder;
};
Raised raised(Graph graph);

/// Tokens of a raised decoder's step, each sequence from its beginning: the inputs by name ("ids", "positions", "slots.0",
/// ...), and the symbols' values by name ("t", "p.0", ...).
struct Step {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, int64_t> symbols;
};
Step step_of(const Raised& raised, const std::vector<std::vector<int32_t>>& prompts);

/// Runs the graph of the mesh's ranks, on the same inputs, with zeroed state. Returns output 0 of each rank.
Shards run_lockstep(const Graph& graph, const Mesh& mesh, const Step& step);

}  // namespace plait::test
