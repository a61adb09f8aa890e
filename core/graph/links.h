#pragma once
// What a pass asks of a graph that it rewrites: the node that makes a value, and the nodes that read it.
#include <set>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace plait {

/// Producers and readers of the values that a graph has when this is made. Values are not looked up after they were added.
class Links {
 public:
  explicit Links(const Graph& graph);

  /// Index of the node that makes it; -1 for inputs, constants and no_value.
  int32_t producer(ValueId id) const { return id == no_value ? -1 : producer_[static_cast<size_t>(id)]; }
  /// Indices of the nodes that read it, ascending, without duplicates.
  const std::vector<int32_t>& readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  bool is_output(ValueId id) const { return outputs_.count(id) != 0; }
  /// Whether one node reads it, and the graph does not return it.
  bool read_once(ValueId id) const { return readers(id).size() == 1 && !is_output(id); }

 private:
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> readers_;
  std::set<ValueId> outputs_;
};

/// The nodes that a graph had, for a pass that builds its list of nodes anew.
class OldNodes : public Links {
 public:
  /// Leaves the graph without nodes.
  explicit OldNodes(Graph& graph) : Links(graph), nodes_(std::move(graph.nodes)) { graph.nodes.clear(); }

  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  /// The node that makes the value, if it is of that op; null if not.
  const Node* maker(ValueId id, std::string_view op) const;
  /// The same of a value that is read once.
  const Node* only(ValueId id, std::string_view op) const { return read_once(id) ? maker(id, op) : nullptr; }
  /// The node that reads a value that is read once; null if the value is not.
  const Node* only_reader(ValueId id) const {
    return read_once(id) ? &nodes_[static_cast<size_t>(readers(id)[0])] : nullptr;
  }

 private:
  std::vector<Node> nodes_;
};

}  // namespace plait
