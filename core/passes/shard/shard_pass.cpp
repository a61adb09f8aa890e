// The pass: seeds from texts and from the file's annotations, then `shard`.
#include "core/passes/shard/annotations.h"
#include "core/passes/shard/shard.h"

namespace plait {

void set_typical_step(Graph& graph) {
  for (const auto& [name, typical] : {std::pair("t", 16), std::pair("r", 4)})
    if (auto id = graph.symbols.find(name)) graph.symbols[*id].typical = typical;
}

void shard(Graph& graph, PassContext& context) {
  const CompileOptions& options = context.options;
  if (options.mesh.ranks() == 1 || !context.decoder.recognised) return;
  set_typical_step(graph);
  const AxisList sequence = sequence_axes(graph, options.mesh, options.seeds);
  const ShardSeeds seeds = seeds_for(graph, options);
  context.plan = shard(graph, options.ops, options.mesh, seeds, {.sequence = sequence});
}

}  // namespace plait
