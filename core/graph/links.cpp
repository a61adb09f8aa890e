#include "core/graph/links.h"

namespace plait {

Links::Links(const Graph& graph)
    : producer_(producers(graph)), readers_(consumers(graph)), outputs_(graph.outputs.begin(), graph.outputs.end()) {}

const Node* OldNodes::maker(ValueId id, std::string_view op) const {
  const int32_t at = producer(id);
  if (at < 0 || nodes_[static_cast<size_t>(at)].op != op) return nullptr;
  return &nodes_[static_cast<size_t>(at)];
}

}  // namespace plait
