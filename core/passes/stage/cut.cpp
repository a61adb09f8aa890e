// Where a graph is cut into stages.
#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/mesh/placement.h"
#include "core/passes/shard/layers.h"
#include "core/passes/stage/stage.h"

namespace plait {
namespace {

/// By value: whether it depends on the tokens' ids; in a graph with a loss of its own, on floats that are given, or on rows of
/// a table of the file.
std::vector<bool> stream_of(const Graph& graph, const PassContext& context) {
  std::vector<bool> stream(static_cast<size_t>(graph.value_count()));
  auto is_float_value = [&](ValueId id) { return is_float(graph.value(id).type.dtype); };
  const bool decoder = context.decoder.recognised;
  for (ValueId id : graph.inputs) stream[static_cast<size_t>(id)] = decoder ? id == graph.inputs[0] : is_float_value(id);
  for (const Node& node : graph.nodes) {
    auto flows = [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; };
    const bool table = !decoder && (node.op == "plait.Embedding" || node.op == "Gather") && is_float_value(node.inputs[0]);
    if (!table && std::none_of(node.inputs.begin(), node.inputs.end(), flows)) continue;
    for (ValueId id : node.outputs)
      if (id != no_value) stream[static_cast<size_t>(id)] = true;
  }
  for (ValueId id : graph.inputs) stream[static_cast<size_t>(id)] = false;  // all ranks get all inputs
  return stream;
}

double work_of(const Graph& graph, const OpSet& ops, const Node& node, const std::vector<int64_t>& typical) {
  if (const auto rule = rule_of(graph, ops, node))
    return static_cast<double>(flops(rule->rule, rule->sizes).evaluate(typical));
  double elements = 0;
  for (ValueId id : node.outputs) {
    if (id == no_value || !graph.value(id).type.dims) continue;
    double size = 1;
    for (const Dim& dim : *graph.value(id).type.dims) size *= static_cast<double>(std::max<int64_t>(dim.evaluate(typical), 1));
    elements += size;
  }
  return elements;
}

double bytes_of(const Constant& constant) {
  return static_cast<double>(constant.shape().elements()) * dtype_bits(constant.dtype()) / 8;
}

}  // namespace

StageUnits stage_units(const Graph& graph, const PassContext& context) {
  const std::vector<bool> stream = stream_of(graph, context);
  const GraphLayers layers = context.decoder.recognised ? packed_layers_of(graph, context.options.ops) : GraphLayers();
  StageUnits out;
  out.layers = layers.count > 0;
  if (out.layers) out.units.resize(static_cast<size_t>(layers.count) + 2);
  std::vector<int64_t> typical;
  for (SymbolId id = 0; id < graph.symbols.size(); ++id)
    typical.push_back(std::max<int64_t>(graph.symbols[id].typical, 1));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool flows = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; });
    if (!flows) {
      out.of_node.push_back(-1);
      continue;
    }
    if (!out.layers) out.units.emplace_back();
    out.of_node.push_back(out.layers ? layers.of_node[i] + 1 : static_cast<int32_t>(out.units.size()) - 1);
    StageUnits::Unit& unit = out.units[static_cast<size_t>(out.of_node.back())];
    unit.work += work_of(graph, context.options.ops, node, typical);
    for (ValueId id : node.inputs)
      if (id != no_value && graph.value(id).constant) unit.bytes += bytes_of(*graph.value(id).constant);
  }
  return out;
}

std::vector<int64_t> balance(const std::vector<StageUnits::Unit>& units, const std::vector<size_t>& seats) {
  const size_t n = units.size(), stages = seats.size();
  PLAIT_ASSERT(n >= stages);
  std::vector<double> work{0}, bytes{0};  // of the first i units
  for (const StageUnits::Unit& unit : units) work.push_back(work.back() + unit.work), bytes.push_back(bytes.back() + unit.bytes);
  constexpr double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<size_t>> begins(stages + 1, std::vector<size_t>(n + 1));
  // The least largest cost of the first s stages of i units, where cost(stage, first, end) is a stage's.
  const auto solve = [&](const auto& cost) {
    std::vector<double> best(n + 1, none), next;
    best[0] = 0;
    for (size_t s = 1; s <= stages; ++s) {
      next.assign(n + 1, none);
      for (size_t end = s; end + (stages - s) <= n; ++end)
        for (size_t begin = s - 1; begin < end; ++begin) {
          const double one = std::max(best[begin], cost(s - 1, begin, end));
          if (one < next[end]) next[end] = one, begins[s][end] = begin;
        }
      best.swap(next);
    }
    return best[n];
  };
  const auto work_of_rank = [&](size_t stage, size_t begin, size_t end) {
    return (work[end] - work[begin]) / static_cast<double>(seats[stage]);
  };
  const double least = solve(work_of_rank);
  solve([&](size_t stage, size_t begin, size_t end) {
    return work_of_rank(stage, begin, end) > least * (1 + 1e-9) ? none : bytes[end] - bytes[begin];
  });
  std::vector<int64_t> out(stages);
  for (size_t s = stages, end = n; s > 0; --s) {
    out[s - 1] = static_cast<int64_t>(end - begins[s][end]);
    end = begins[s][end];
  }
  return out;
}

}  // namespace plait
