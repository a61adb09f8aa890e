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
/// An input of rows that an embedding graph puts in the places of tokens.
struct GivenInput {
  std::string name;             ///< "image_features"
  std::vector<int32_t> tokens;  ///< ids for which it takes a row, unchanged and in order
};
struct TextEmbeddings {
  Graph graph;  ///< of ids only; its only output is the embeddings [b, s, h]
  std::vector<GivenInput> inputs;
};
/// Of an embedding graph with inputs of rows next to ids: the part that makes embeddings of ids, and for which ids it takes rows, of which
/// `known_tokens` may be some. Throws Error(unsupported) if it does anything else with them.
TextEmbeddings text_embeddings(const Graph& file, const CompileOptions& options,
                               std::span<const int32_t> known_tokens);

/// Gives the attention mask a length of its own if the file declares it as long as the new tokens although there is a
/// past: a merged file, whose declaration holds only for the first run.
void free_mask(Graph& graph, const DecoderInterface& found);

}  // namespace plait
