#pragma once
// What Linears of a raised decoder do, as the graph shows it, whatever the file calls them.
#include <map>
#include <set>
#include <string_view>

#include "core/graph/graph.h"

namespace plait {

/// By node, of each plait.Linear one or more of
///   query, key, value   what attention is computed of; a packed product is several
///   attention_output    what reads the attention's result
///   attention           all of these, and what stands around a recurrence
///   feed_forward        all else, but
///   head                what makes the logits, output 0
std::map<size_t, std::set<std::string_view>> linear_roles(const Graph& graph);
}  // namespace plait
