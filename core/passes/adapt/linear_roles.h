#pragma once
// Roles of a raised decoder's Linears, found from the graph, not from names.
#include <map>
#include <set>
#include <string_view>

#include "core/graph/graph.h"

namespace plait {

/// By node, of each plait.Linear one or more of
///   query, key, value   inputs of attention; a packed projection has several
///   attention_output    reads the attention's result
///   attention           all of these, and the Linears around a recurrence
///   feed_forward        all others except
///   head                makes the logits, output 0
std::map<size_t, std::set<std::string_view>> linear_roles(const Graph& graph);
}  // namespace plait
