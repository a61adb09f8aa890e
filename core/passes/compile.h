#pragma once
// From a graph to programs. compile.cpp holds the list of passes and reads top to bottom.
#include <memory>

#include "core/exec/program.h"
#include "core/passes/pass.h"

namespace plait {

// The passes, one file each; what a pass does stands at the top of its file.
void interface(Graph& graph, PassContext& context);
void fold(Graph& graph, PassContext& context);
void raise(Graph& graph, PassContext& context);
void shard(Graph& graph, PassContext& context);
void fuse(Graph& graph, PassContext& context);
void scan(Graph& graph, PassContext& context);

/// The roles of inputs and outputs, found without changing the graph.
DecoderInterface find_interface(const Graph& graph, const OpSet& ops);
/// A mask that is declared as long as the new tokens, though there is a past, gets a length of its own: a file that was
/// merged of two says of it what holds for the first run alone.
void free_mask(Graph& graph, const DecoderInterface& found);

/// Adds a step to a constant's recipe, merging it with the last where that is possible.
void add_step(Constant& constant, RecipeStep step);

/// Graph to program: chooses kernels and buffers (lower), then lifetimes and offsets (plan). `label` keeps computed
/// constants of programs that share a store apart. Throws Error(unsupported) when a node has no kernel.
std::shared_ptr<Program> lower(const Graph& graph, const CompileOptions& options, std::string_view label);
void plan(Program& program);

/// A graph that runs as the file says, all its outputs in order.
struct PlainModel {
  std::shared_ptr<const Program> program;
  DecoderInterface interface;  ///< ids, past and present by number, where the graph is a language model
};
PlainModel compile_plain(Graph graph, const CompileOptions& options);

/// A recognised decoder on ragged rows. `bounds` gives the memory that is planned.
struct RaggedBounds {
  int64_t tokens = 512;   ///< of one step, over all its segments
  int64_t segments = 64;  ///< requests in one step
  int64_t rows = 64;      ///< tokens whose logits are asked for in one step
  int64_t page_tokens = 32;
  std::vector<int64_t> pages;  ///< of each pool: entries of its page arrays
  int64_t states = 0;          ///< slots of states
};
struct RaggedModel {
  std::shared_ptr<const Program> program;         ///< null when the decoder was not recognised
  std::shared_ptr<const Program> hidden_program;  ///< ends at the hidden state; null where there is none
  Decoder decoder;
  Mesh mesh;
  ShardPlan plan;  ///< on a mesh of several ranks
};
/// `bounds` is asked once the decoder is recognised, with what was found: the number of pages depends on it.
RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& bounds);

/// Fingerprints of what raise finds need no bounds: the passes up to raise alone, for `plait inspect`.
Decoder recognise(Graph graph, const CompileOptions& options);

}  // namespace plait
