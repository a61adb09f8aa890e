// Where a graph is cut into stages.
#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
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
  for (ValueId id : graph.inputs)
    stream[static_cast<size_t>(id)] = decoder ? id == graph.inputs[0] : is_float_value(id);
  for (const Node& node : graph.nodes) {
    auto flows = [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; };
    const bool table =
        !decoder && (node.op == "plait.Embedding" || node.op == "Gather") && is_float_value(node.inputs[0]);
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
    for (const Dim& dim : *graph.value(id).type.dims)
      size *= static_cast<double>(std::max<int64_t>(dim.evaluate(typical), 1));
    elements += size;
  }
  return elements;
}

/// Joins units that share pages, which do not cross; and, of a generator, the last ones if an earlier one makes a result.
void join_units(const Graph& graph, const PassContext& context, StageUnits& out) {
  std::vector<int32_t> maker(static_cast<size_t>(graph.value_count()), -1);  // by value: the unit that makes it
  std::vector<bool> updated(maker.size());
  const auto join = [&](int32_t from, int32_t to) {
    for (int32_t unit = from + 1; from >= 0 && unit <= to; ++unit) out.units[static_cast<size_t>(unit)].joined = true;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const OpSchema* schema = context.options.ops.find(node.op);
    for (ValueId id : node.inputs)
      if (id != no_value && updated[static_cast<size_t>(id)]) join(maker[static_cast<size_t>(id)], out.of_node[i]);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId id = node.outputs[k];
      if (id == no_value) continue;
      maker[static_cast<size_t>(id)] = out.of_node[i];
      updated[static_cast<size_t>(id)] = schema && static_cast<int>(k) < schema->updates;
    }
  }
  for (ValueId id : graph.outputs)
    if (id != no_value && !context.training)
      join(maker[static_cast<size_t>(id)], static_cast<int32_t>(out.units.size()) - 1);
}

double bytes_of(const Constant& constant) {
  return static_cast<double>(constant.shape().elements()) * dtype_bits(constant.dtype()) / 8;
}

double bytes_of(const Type& type, const std::vector<int64_t>& typical) {
  double out = dtype_bits(type.dtype) / 8.0;
  for (const Dim& dim : *type.dims) out *= static_cast<double>(dim.evaluate(typical));
  return out;
}

}  // namespace

StageUnits stage_units(const Graph& graph, const PassContext& context) {
  const std::vector<bool> stream = stream_of(graph, context);
  const GraphLayers layers = context.decoder.recognised ? layers_of(graph, context.options.ops) : GraphLayers();
  StageUnits out;
  out.layers = layers.count > 0;
  if (out.layers) out.units.resize(static_cast<size_t>(layers.count) + 2);
  std::vector<int64_t> typical;
  for (SymbolId id = 0; id < graph.symbols.size(); ++id)
    typical.push_back(std::max<int64_t>(graph.symbols[id].typical, 1));
  std::vector<std::string> keys(stream.size());  // of States
  std::vector<int32_t> maker(stream.size(), 0);  // by value: the unit that makes it
  for (const Node& node : graph.nodes)
    if (is_state(node)) keys[static_cast<size_t>(node.outputs[0])] = node.attributes.string("key", "");
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool flows = std::any_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId id) { return id != no_value && stream[static_cast<size_t>(id)]; });
    if (!flows) {
      out.of_node.push_back(-1);
      continue;
    }
    if (!out.layers) out.units.emplace_back();
    int32_t number = out.layers ? layers.of_node[i] + 1 : static_cast<int32_t>(out.units.size()) - 1;
    for (ValueId id : node.inputs)  // such as what reads the logits
      if (id != no_value) number = std::max(number, maker[static_cast<size_t>(id)]);
    for (ValueId id : node.outputs)
      if (id != no_value) maker[static_cast<size_t>(id)] = number;
    out.of_node.push_back(number);
    StageUnits::Unit& unit = out.units[static_cast<size_t>(out.of_node.back())];
    unit.work += work_of(graph, context.options.ops, node, typical);
    for (ValueId id : node.inputs) {
      if (id == no_value) continue;
      if (const auto& constant = graph.value(id).constant) {
        unit.bytes += bytes_of(*constant);
        unit.held[constant->initializer.empty() ? cat("#", id) : cat(constant->initializer, text(constant->steps))] =
            bytes_of(*constant);
      } else if (const std::string& key = keys[static_cast<size_t>(id)]; !key.empty()) {
        const double bytes = bytes_of(graph.value(id).type, typical);
        if (store_keys::is_cache(key)) unit.cache += bytes;
        else unit.held[key] = bytes;
      }
    }
  }
  join_units(graph, context, out);
  return out;
}

std::vector<int64_t> least_cut(const std::vector<StageUnits::Unit>& units, size_t stages, const StageCost& cost) {
  const size_t n = units.size();
  PLAIT_ASSERT(n >= stages);
  constexpr double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<size_t>> begins(stages + 1, std::vector<size_t>(n + 1));
  std::vector<double> best(n + 1, none), next;  // the least largest cost of the first s stages of i units
  best[0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    next.assign(n + 1, none);
    for (size_t end = s; end + (stages - s) <= n; ++end)
      for (size_t begin = s - 1; begin < end; ++begin) {
        if (units[begin].joined || best[begin] == none) continue;
        const double one = std::max(best[begin], cost(s - 1, begin, end));
        if (one < next[end]) next[end] = one, begins[s][end] = begin;
      }
    best.swap(next);
  }
  if (best[n] == none) return {};
  std::vector<int64_t> out(stages);
  for (size_t s = stages, end = n; s > 0; --s) {
    out[s - 1] = static_cast<int64_t>(end - begins[s][end]);
    end = begins[s][end];
  }
  return out;
}

std::vector<int64_t> balance(const std::vector<StageUnits::Unit>& units, const std::vector<size_t>& seats) {
  std::vector<double> work{0}, bytes{0};  // of the first i units
  for (const StageUnits::Unit& unit : units)
    work.push_back(work.back() + unit.work), bytes.push_back(bytes.back() + unit.bytes);
  const StageCost work_of_rank = [&](size_t stage, size_t begin, size_t end) {
    return (work[end] - work[begin]) / static_cast<double>(seats[stage]);
  };
  const std::vector<int64_t> balanced = least_cut(units, seats.size(), work_of_rank);
  double least = 0;
  for (size_t s = 0, begin = 0; s < balanced.size(); begin += static_cast<size_t>(balanced[s++]))
    least = std::max(least, work_of_rank(s, begin, begin + static_cast<size_t>(balanced[s])));
  return balanced.empty() ? balanced : least_cut(units, seats.size(), [&](size_t stage, size_t begin, size_t end) {
    return work_of_rank(stage, begin, end) > least * (1 + 1e-9) ? std::numeric_limits<double>::infinity()
                                                                : bytes[end] - bytes[begin];
  });
}

}  // namespace plait
