#pragma once
// Passes that keep a graph's meaning and its ops: one symbol per length, constants folded, Scan as Loop.
#include "core/passes/base/pass.h"

namespace plait {

void interface(Graph& graph, PassContext& context);
void fold(Graph& graph, PassContext& context);
void scan(Graph& graph, PassContext& context);

/// The roles of a language model's inputs and outputs; does not change the graph.
DecoderInterface find_interface(const Graph& graph, const OpSet& ops);
/// Gives the attention mask a length of its own where the file declares it as long as the new tokens although there is a
/// past: such a file was merged from two, and its declaration holds for the first run only.
void free_mask(Graph& graph, const DecoderInterface& found);

}  // namespace plait
