#include "core/passes/shard/local.h"

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void check_seeds(const Graph& graph, const ShardSeeds& seeds, const Mesh& mesh) {
  const std::vector<int32_t> producer = producers(graph);
  for (const auto& [id, sharding] : seeds) {
    const Value& value = graph.value(id);
    const int32_t maker = producer[static_cast<size_t>(id)];
    if (!value.constant && maker >= 0 && !is_state(graph.nodes[static_cast<size_t>(maker)]))
      throw Error(Code::invalid_argument, cat("value ", quote(value.name), " is no weight"));
    const size_t rank = value.type.dims ? value.type.dims->size() : 0;
    if (sharding.dims.size() != rank || !local_dims(*value.type.dims, sharding, mesh))
      throw Error(Code::invalid_argument,
                  cat("weight ", quote(value.name), " of ", text(value.type, graph.symbols), " cannot be sharded as ",
                      text(sharding, mesh), " on the mesh ", quote(mesh.text())),
                  "an axis can only shard a dimension that it divides");
  }
}

Node collective_node(const Collective& step, const Mesh& mesh) {
  using Kind = CollectiveKind;
  Node node;
  node.attributes.set("axes", mesh.text(step.axes));
  node.attributes.set("parts", mesh.blocks(step.axes));
  node.op = cat("plait.", op_name(step.kind));
  if (step.kind == Kind::all_reduce || step.kind == Kind::reduce_scatter)
    node.attributes.set("reduction", std::string(step.reduction == PendingKind::max   ? "max"
                                                 : step.reduction == PendingKind::min ? "min"
                                                                                      : "sum"));
  if (step.kind != Kind::all_reduce) node.attributes.set("dim", int64_t{step.dim});
  if (step.kind == Kind::all_to_all) node.attributes.set("to_dim", int64_t{step.to_dim});
  return node;
}

Constant part_of(const Constant& whole, const Sharding& place, const Mesh& mesh) {
  Constant part = whole;
  for (size_t d = 0; d < place.dims.size(); ++d) {
    if (place.dims[d].empty()) continue;
    RecipeStep step{RecipeStep::Kind::part, {static_cast<int64_t>(d), mesh.blocks(place.dims[d])}};
    step.numbers.insert(step.numbers.end(), place.dims[d].begin(), place.dims[d].end());
    add_step(part, std::move(step));
  }
  return part;
}

}  // namespace plait
