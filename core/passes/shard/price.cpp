#include "core/passes/shard/price.h"

#include <algorithm>
#include <set>

#include "core/base/text.h"

namespace plait {

std::string memory_key(const Constant& constant) {
  return constant.initializer.empty() ? std::string() : cat(constant.initializer, " | ", text(constant.steps));
}

int64_t token_bytes(const Type& type) {
  int64_t elements = 1;
  for (const Dim& dim : type.dims.value_or(Dims{})) {
    const std::vector<SymbolId> symbols = dim.symbols();
    elements *= dim.evaluate(std::vector<int64_t>(symbols.empty() ? 0 : static_cast<size_t>(symbols.back()) + 1, 1));
  }
  return (elements * dtype_bits(type.dtype) + 7) / 8;
}

HeldBytes held_bytes(const Graph& graph, const ShardPlan& plan, const Mesh& mesh) {
  HeldBytes out;
  std::set<std::string> seen;
  auto first = [&](const std::string& key) { return key.empty() || seen.insert(key).second; };
  auto held = [&](ValueId id, const Sharding& sharding) {
    const int64_t bytes = token_bytes(graph.value(id).type), part = bytes / mesh.blocks(sharding.axes());
    const std::string key = memory_key(*graph.value(id).constant);
    if (first(key.empty() ? key : cat(key, " | ", text(sharding, mesh)))) out.rank_weights += part;
    return std::pair(bytes, key);
  };
  for (const auto& [id, sharding] : plan.weights)
    if (const auto [bytes, key] = held(id, sharding); first(key)) out.weights += bytes;
  for (const auto& [id, sharding] : plan.copies) held(id, sharding);
  const auto slot = graph.symbols.find("c");  // of a page
  for (const Node& node : graph.nodes) {
    if (!is_state(node)) continue;
    auto found = plan.states.find(node.attributes.string("key", ""));
    if (found == plan.states.end()) continue;  // unused
    const Type& type = graph.value(node.outputs[0]).type;
    const bool pages = slot && std::any_of(type.dims->begin(), type.dims->end(),
                                           [&](const Dim& dim) { return dim.single_symbol() == *slot; });
    (pages ? out.token_cache : out.sequence_states) += token_bytes(type);
    (pages ? out.rank_token_cache : out.rank_sequence_states) +=
        token_bytes(type) / mesh.blocks(found->second.axes());
  }
  return out;
}

PlanPrice price_of(const Graph& graph, const ShardPlan& plan, const Mesh& mesh, const LinkPrices& prices) {
  const HeldBytes held = held_bytes(graph, plan, mesh);
  PlanPrice out;
  out.reading =
      static_cast<double>(held.rank_weights + held.rank_token_cache * prices.context + held.rank_sequence_states) /
      prices.memory;
  for (const PlannedCollective& one : plan.collectives)
    out.moving += moved_bytes(one.step, static_cast<double>(token_bytes(one.held)), mesh) / prices.link;
  out.waiting = static_cast<double>(plan.collectives.size()) * prices.latency;
  return out;
}

}  // namespace plait
