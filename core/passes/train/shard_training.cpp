// Training on several ranks: shardings of weights, summed gradients and optimizer state.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/base/pass.h"
#include "core/passes/shard/annotations.h"
#include "core/passes/train/parameters.h"

namespace plait {
namespace {

/// The States of a graph by key. Pipeline stages that read one array have a State each.
std::map<std::string, std::vector<ValueId>> states_of(const Graph& graph) {
  std::map<std::string, std::vector<ValueId>> out;
  for (const Node& node : graph.nodes)
    if (is_state(node)) out[node.attributes.string("key", "")].push_back(node.outputs[0]);
  return out;
}

void place_all(const std::vector<ValueId>& ids, const Sharding& sharding, ShardSeeds& seeds) {
  for (ValueId id : ids) seeds.insert_or_assign(id, sharding);
}

/// Also sharded by `axes`, along the first dim that they divide; unchanged if there is none.
Sharding cut_further(Sharding sharding, const Shape& shape, const AxisList& axes, const Mesh& mesh) {
  const AxisList used = sharding.axes();
  AxisList more;
  for (AxisId axis : axes)
    if (std::find(used.begin(), used.end(), axis) == used.end()) more.push_back(axis);
  for (int d = 0; d < shape.rank(); ++d) {
    AxisList& dim = sharding.dims[static_cast<size_t>(d)];
    if (shape[d] % (mesh.blocks(dim) * mesh.blocks(more))) continue;
    dim.insert(dim.end(), more.begin(), more.end());
    break;
  }
  return sharding;
}

/// Inputs are rows of tokens, or a batch, sharded by `data`.
ShardSeeds with_rows(const PassContext& context, const Graph& graph, const AxisList& data) {
  ShardSeeds seeds = context.seeds;
  for (ValueId id : graph.inputs) {
    const int dim = spread_dim(graph, id, context.options.mesh.blocks(data), *context.training);
    if (!data.empty() && dim >= 0) seeds.emplace(id, Sharding::cut(graph.value(id).type.dims->size(), dim, data));
  }
  return seeds;
}

}  // namespace

StatePlaces shard_training(Graph& graph, Graph* of_host, PassContext& context) {
  const CompileOptions& options = context.options;
  const Mesh& mesh = options.mesh;
  const AxisList data = mesh.parts("data");
  ShardSeeds seeds = with_rows(context, graph, data);
  // The uses of weights are known after a trial sharding of the graph.
  Graph trial = graph;
  const NodeRules rules = rules_of(graph, options.ops);
  ShardSettings settings;
  settings.rules = &rules;
  settings.sequence = context.sequence;
  const ShardPlan first = shard(trial, options.ops, mesh, seeds, settings);
  const auto states = states_of(graph);
  StatePlaces out, in_use;
  std::vector<Sharding> optimized;  // of each parameter, the part that a rank updates
  for (const TrainedParameter& one : context.parameters) {
    const Sharding used{first.states.at(one.key).dims, {}};
    const int zero = context.training->gradients ? context.training->zero : 0;
    const Sharding shared = zero ? cut_further(used, one.shape, data, mesh) : used;
    place_all(states.at(one.key), used, seeds);
    in_use.emplace(one.key, used);
    if (zero >= 3 && shared != used) place_all(states.at(one.key), shared, settings.stored);
    out.emplace(one.key, zero >= 3 ? shared : used);
    if (!context.training->gradients) continue;
    place_all(states.at(store_keys::gradient(one.key)), zero >= 2 ? shared : used, seeds);
    for (const OptimizerState& state : optimizer_states(context.training->optimizer.kind, one.shape.rank())) {
      Sharding cut = Sharding::replicated(state.dims.size());
      for (size_t d = 0; d < state.dims.size(); ++d) cut.dims[d] = shared.dims[static_cast<size_t>(state.dims[d])];
      out.emplace(one.key + state.suffix, cut);
    }
    optimized.push_back(shared);
  }
  context.plan = shard(graph, options.ops, mesh, seeds, settings);
  for (size_t i = 0; i < optimized.size(); ++i) {
    const TrainedParameter& one = context.parameters[i];
    const Sharding &sum = context.plan.states.at(store_keys::gradient(one.key)), &whole = optimized[i];
    if (sum != whole) out.emplace(store_keys::reduced_gradient(one.key), whole);
    out.emplace(store_keys::gradient(one.key), sum);
  }
  if (!of_host) return out;
  seeds = with_rows(context, *of_host, data);
  settings.stored.clear();
  settings.rules = nullptr;
  for (const auto& [key, ids] : states_of(*of_host)) {
    const Sharding& kept = out.at(key);
    auto used = in_use.find(key);
    place_all(ids, used == in_use.end() ? Sharding{kept.dims, {}} : used->second, seeds);
    if (used != in_use.end() && used->second != kept) place_all(ids, kept, settings.stored);
  }
  const ShardPlan plan = shard(*of_host, options.ops, mesh, seeds, settings);
  for (const auto& [key, place] : plan.states)
    if (place != out.at(key))
      throw Error(Code::unsupported,
                  cat("on the mesh ", quote(mesh.text()), " the gradients of a host's loss add up to ", quote(key),
                      " on other ranks than those of the model's own"),
                  "use the trainer's own loss, or a mesh with only the axis data");
  return out;
}

void shard_states(Graph& graph, const CompileOptions& options, const StatePlaces& places) {
  if (places.empty()) return;
  ShardSeeds seeds;
  for (const auto& [key, ids] : states_of(graph)) place_all(ids, places.at(key), seeds);
  shard(graph, options.ops, options.mesh, seeds);
}

}  // namespace plait
