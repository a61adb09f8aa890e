#pragma once
// Passes that keep a graph's meaning and ops: unified symbols, folded constants, Scan as Loop.
#include "core/passes/base/pass.h"

namespace plait {

void interface(Graph& graph, PassContext& context);
void fold(Graph& graph, PassContext& context);
void scan(Graph& graph, PassContext& context);

/// Finds the roles of a language model's inputs and outputs; does not change the graph.
DecoderInterface find_interface(const Graph& graph, const OpSet& ops);
/// Where the graph computes `embeddings_input` (core/graph/graft.h) and takes it no other way, adds inputs for rows that stand for
/// tokens (DecoderInterface::given). Other graphs stay as they are.
void give_rows(Graph& graph, const OpSet& ops);
/// Gives the attention mask a length of its own if the file declares it as long as the new tokens although there is a
/// past: a merged file, whose declaration holds only for the first run.
void free_mask(Graph& graph, const DecoderInterface& found);

}  // namespace plait
