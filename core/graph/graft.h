#pragma once
// Joins two graphs: an input of one becomes what the other computes.
#include <string>
#include <string_view>

#include "core/graph/graph.h"

namespace plait {

/// The input by which a decoder takes embeddings in place of token ids, in the name that exporters give it: [b, s, h].
inline constexpr std::string_view embeddings_input = "inputs_embeds";

/// The name of an initializer of a grafted graph if the other graph has one of its name.
std::string grafted(const std::string& initializer);

/// `input`, of `graph`, becomes output `output` of `source`: its nodes come first, and its inputs are inputs of `graph`, before the
/// others, unless `graph` has one of the same name, dtype and rank, which then is both. Names of `source` that are taken, of
/// initializers too, get the suffix ".graft". Throws Error(bad_model) if the two values differ in dtype, rank or a size;
/// Error(unsupported) if `source` has bodies.
void graft(Graph& graph, ValueId input, const Graph& source, size_t output);

}  // namespace plait
