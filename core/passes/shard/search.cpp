#include "core/passes/shard/search.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/passes/shard/layers.h"

namespace plait {
namespace {

/// Weights in the same role.
using Kind = std::vector<ValueId>;

/// Matrices, and stacks of them: vectors follow.
bool is_matrix(const Graph& graph, ValueId id) {
  if (id == no_value || !graph.value(id).constant) return false;
  const Dims& dims = *graph.value(id).type.dims;
  return std::count_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.constant() > 1; }) > 1;
}

/// The largest first.
std::vector<Kind> kinds_of(const Graph& graph, const OpSet& ops, const ShardSeeds& given) {
  const GraphLayers layers = layers_of(graph, ops);
  const auto parts = static_cast<size_t>(layers.count) + 2;
  std::vector<std::vector<ValueId>> weights(parts);
  std::vector<std::string> rows(parts);  // a part's weights, in node order
  std::vector<bool> seen(static_cast<size_t>(graph.value_count()));
  std::map<std::string, std::vector<ValueId>> same;  // memory with several names: a tied table
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto part = static_cast<size_t>(layers.of_node[i] + 1);
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId id = node.inputs[k];
      if (!is_matrix(graph, id) || seen[static_cast<size_t>(id)]) continue;
      seen[static_cast<size_t>(id)] = true;
      if (const std::string key = memory_key(*graph.value(id).constant); !key.empty()) {
        std::vector<ValueId>& all = same[key];
        all.push_back(id);
        if (all.size() > 1) continue;
      }
      weights[part].push_back(id);
      rows[part] += cat(node.op, " ", k, " ", text(graph.value(id).type, graph.symbols), ";");
    }
  }
  std::map<std::string, size_t> first;  // of the kinds of a row
  std::vector<Kind> out;
  int64_t all = 0;
  for (size_t part = 0; part < parts; ++part) {
    auto [known, fresh] = first.try_emplace(rows[part], out.size());
    if (fresh) out.resize(out.size() + weights[part].size());
    for (size_t i = 0; i < weights[part].size(); ++i) {
      all += token_bytes(graph.value(weights[part][i]).type);
      if (!given.contains(weights[part][i])) out[known->second + i].push_back(weights[part][i]);
    }
  }
  for (Kind& kind : out)
    for (size_t i = 0, count = kind.size(); i < count; ++i)
      if (auto all = same.find(memory_key(*graph.value(kind[i]).constant)); all != same.end())
        kind.insert(kind.end(), all->second.begin() + 1, all->second.end());
  auto bytes = [&](const Kind& kind) {
    return kind.empty() ? 0 : static_cast<int64_t>(kind.size()) * token_bytes(graph.value(kind[0]).type);
  };
  // Weights below a thousandth of the model are not searched.
  std::erase_if(out, [&](const Kind& kind) { return bytes(kind) * 1000 <= all; });
  std::stable_sort(out.begin(), out.end(), [&](const Kind& a, const Kind& b) { return bytes(a) > bytes(b); });
  return out;
}

class Descent {
 public:
  Descent(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& given, const LinkPrices& prices)
      : graph_(graph),
        ops_(ops),
        mesh_(mesh),
        prices_(prices),
        axes_(mesh.parts("tensor")),
        given_(given),
        rules_(rules_of(graph, ops)) {}

  FoundSeeds run(ShardSeeds start) {
    const std::vector<Kind> kinds = kinds_of(graph_, ops_, given_);
    FoundSeeds best{std::move(start)};
    best.seconds = price(best.seeds);
    // A kind is tried again after another has changed.
    for (size_t i = 0, unchanged = 0; unchanged < kinds.size(); i = (i + 1) % kinds.size()) {
      bool better = false;
      for (const Sharding& way : ways(kinds[i], best.seeds)) {
        ShardSeeds seeds = best.seeds;
        for (ValueId id : kinds[i])
          if (way.is_replicated()) seeds.erase(id);
          else seeds[id] = way;
        if (const double seconds = price(seeds); seconds < best.seconds * (1 - 1e-9)) {
          best.seeds = std::move(seeds);
          best.seconds = seconds;
          better = true;
        }
      }
      unchanged = better ? 1 : unchanged + 1;
    }
    best.plans = plans_;
    return best;
  }

  double price(ShardSeeds& seeds) {
    ++plans_;
    for (const auto& [id, sharding] : given_) seeds[id] = sharding;
    Graph local = graph_;
    return price_of(graph_, shard(local, ops_, mesh_, seeds, {.rules = &rules_}), mesh_, prices_).seconds();
  }

 private:
  /// Alternative shardings of a kind: no seed, each dim by all axes, and one axis moved.
  std::vector<Sharding> ways(const Kind& kind, const ShardSeeds& seeds) const {
    const Dims& dims = *graph_.value(kind[0]).type.dims;
    auto seed = seeds.find(kind[0]);
    const Sharding none = Sharding::replicated(dims.size());
    const Sharding now = seed == seeds.end() ? none : seed->second;
    std::vector<Sharding> out{now};
    auto add = [&](Sharding way) {
      for (AxisList& dim : way.dims) std::sort(dim.begin(), dim.end());
      if (local_dims(dims, way, mesh_) && std::find(out.begin(), out.end(), way) == out.end())
        out.push_back(std::move(way));
    };
    for (size_t d = 0; d < dims.size(); ++d) add(Sharding::cut(dims.size(), d, axes_));
    for (AxisId axis : axes_) {
      Sharding without = now;
      for (AxisList& dim : without.dims) std::erase(dim, axis);
      for (size_t d = 0; d < dims.size(); ++d) {
        Sharding way = without;
        way.dims[d].push_back(axis);
        add(std::move(way));
      }
      add(std::move(without));
    }
    add(none);
    out.erase(out.begin());
    return out;
  }

  const Graph& graph_;
  const OpSet& ops_;
  const Mesh& mesh_;
  const LinkPrices& prices_;
  const AxisList axes_;
  const ShardSeeds& given_;
  const NodeRules rules_;
  int64_t plans_ = 0;
};

}  // namespace

FoundSeeds search_seeds(const Graph& graph, const OpSet& ops, const Mesh& mesh, const ShardSeeds& given,
                        const LinkPrices& prices) {
  Descent descent(graph, ops, mesh, given, prices);
  FoundSeeds best = descent.run({});
  for (Recipe recipe : {Recipe::tensor, Recipe::expert})
    if (ShardSeeds start = recipe_seeds(graph, ops, mesh, mesh.parts("tensor"), recipe);
        descent.price(start) < best.seconds)
      best = descent.run(start), best.from_nothing = false;
  return best;
}

}  // namespace plait
