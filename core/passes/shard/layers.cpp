#include "core/passes/shard/layers.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"

namespace plait {
namespace {

/// Of training graphs: each reads other tokens of its row, as its counterpart in generation reads pages or states.
bool reads_row(const Node& node) {
  return node.op == "plait.PackedAttention" || node.op == "plait.PackedConv" || node.op == "plait.PackedLinearAttention";
}

class LayerFinder {
 public:
  LayerFinder(const Graph& graph, const OpSet& ops) : graph_(graph) {
    const auto values = static_cast<size_t>(graph.value_count());
    state_.assign(values, false);
    stateful_.assign(graph.nodes.size(), false);
    level_.assign(values, 0);
    const bool of_rows = std::any_of(graph.nodes.begin(), graph.nodes.end(), reads_row);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const OpSchema* schema = ops.find(node.op);
      int level = 0;
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId id = node.inputs[k];
        if (id == no_value) continue;
        if (!state_[at(id)]) level = std::max(level, level_[at(id)]);
        else if (!of_rows) stateful_[i] = true;  // otherwise an adapter
        if (state_[at(id)] && schema && static_cast<int>(k) < schema->updates && k < node.outputs.size())
          state_[at(node.outputs[k])] = true;
      }
      if (reads_row(node)) stateful_[i] = true;
      for (ValueId id : node.outputs) {
        if (id == no_value) continue;
        if (is_state(node)) state_[at(id)] = true;
        level_[at(id)] = level + (stateful_[i] ? 1 : 0);
      }
    }
  }

  GraphLayers run() {
    std::vector<bool> waists = find_waists(false);
    // Per-layer embeddings run parallel to the stream up to the last one: excluded if they hide it.
    if (!separated(waists)) waists = find_waists(true);
    number_segments(waists);
    return layers();
  }

 private:
  static size_t at(ValueId id) { return static_cast<size_t>(id); }
  static constexpr int shared = -1;

  /// Without keys and values of attention, which later layers may share: in generation they pass through pages.
  static std::span<const ValueId> stream_inputs(const Node& node) {
    return std::span(node.inputs).first(node.op == "plait.PackedAttention" ? 1 : node.inputs.size());
  }

  /// Whether the step from a value to a node of `level` is one of the stream's.
  bool follows(ValueId id, int level, bool short_steps) const {
    return id != no_value && !state_[at(id)] && !(short_steps && level_[at(id)] == 0 && level > 1);
  }
  int level_of(const Node& node) const {
    for (ValueId id : node.outputs)
      if (id != no_value) return level_[at(id)];
    return 0;
  }

  /// Values on every path from the ids to the logits: those with paths in times paths out equal to all paths. Counts
  /// modulo a prime, since there are exponentially many.
  std::vector<bool> find_waists(bool short_steps) {
    constexpr uint64_t prime = 2147483629;
    std::vector<uint64_t> here(state_.size(), 0), on(state_.size(), 0);
    here[at(graph_.inputs[0])] = 1;
    for (const Node& node : graph_.nodes) {
      uint64_t sum = 0;
      for (ValueId id : stream_inputs(node))
        if (follows(id, level_of(node), short_steps)) sum += here[at(id)];
      for (ValueId id : node.outputs)
        if (id != no_value && !state_[at(id)]) here[at(id)] = sum % prime;
    }
    on[at(graph_.outputs[0])] = 1;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      uint64_t sum = 0;
      for (ValueId id : node.outputs)
        if (id != no_value) sum += on[at(id)];
      for (ValueId id : stream_inputs(node))
        if (follows(id, level_of(node), short_steps)) on[at(id)] = (on[at(id)] + sum) % prime;
    }
    const uint64_t all = here[at(graph_.outputs[0])];
    std::vector<bool> out(state_.size());
    for (size_t id = 0; id < out.size(); ++id) out[id] = all && here[id] * on[id] % prime == all;
    stream_.assign(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (ValueId id : graph_.nodes[i].outputs)
        if (id != no_value && here[at(id)]) stream_[i] = true;
    return out;
  }

  /// Whether there is a waist between reads of states.
  bool separated(const std::vector<bool>& waists) const {
    int last = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (stateful_[i]) last = std::max(last, level_of(graph_.nodes[i]));
    for (size_t id = 0; id < waists.size(); ++id)
      if (waists[id] && level_[id] > 0 && level_[id] < last) return true;
    return last <= 1;
  }

  /// A segment ends with a waist. A node belongs to the first waist that it leads to; nodes that lead to several,
  /// before all layers, are shared.
  void number_segments(const std::vector<bool>& waists) {
    const auto readers = consumers(graph_);
    segment_.assign(graph_.nodes.size(), shared);
    segments_ = 0;
    for (const Node& node : graph_.nodes)
      if (makes_waist(node, waists)) ++segments_;
    int next = segments_;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (makes_waist(node, waists)) {
        segment_[i] = --next;
        continue;
      }
      int first = segments_;
      bool one = true;
      for (ValueId id : node.outputs) {
        if (id == no_value) continue;
        for (int32_t reader : readers[at(id)]) {
          const int found = segment_[static_cast<size_t>(reader)];
          one = one && (first == segments_ || found == first);
          first = std::min(first, found);
        }
      }
      const bool before_all = level_of(node) == 0 && !writes_state(node);
      segment_[i] = first == segments_ || (!one && before_all) ? shared : first;
    }
  }
  bool makes_waist(const Node& node, const std::vector<bool>& waists) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != no_value && waists[at(id)]; });
  }
  bool writes_state(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id != no_value && state_[at(id)]; });
  }

  GraphLayers layers() const {
    const auto count = static_cast<size_t>(segments_);
    std::vector<bool> begins(count);
    std::vector<int> nodes(count);
    for (size_t i = 0; i < segment_.size(); ++i) {
      if (segment_[i] == shared) continue;
      const auto segment = static_cast<size_t>(segment_[i]);
      if (stateful_[i]) begins[segment] = true;
      if (stream_[i]) ++nodes[segment];
    }
    // The head is a chain, each link a waist; branches belong to the last layer.
    size_t end = count;
    while (end > 0 && !begins[end - 1] && nodes[end - 1] <= 1) --end;
    GraphLayers out;
    std::vector<int> layer(count, -1);
    for (size_t i = 0; i < end; ++i) {
      if (begins[i]) ++out.count;
      layer[i] = out.count - 1;
    }
    for (size_t i = end; i < count; ++i) layer[i] = out.count;
    for (int segment : segment_) out.of_node.push_back(segment == shared ? -1 : layer[static_cast<size_t>(segment)]);
    return out;
  }

  const Graph& graph_;
  std::vector<bool> state_;     ///< by value: pages and recurrent states
  std::vector<int> level_;      ///< by value: number of state reads on the way to it
  std::vector<bool> stateful_;  ///< by node: it reads states, or other tokens of its row
  std::vector<bool> stream_;    ///< by node: it depends on the ids
  std::vector<int> segment_;    ///< by node
  int segments_ = 0;
};

}  // namespace

GraphLayers layers_of(const Graph& graph, const OpSet& ops) { return LayerFinder(graph, ops).run(); }

}  // namespace plait
