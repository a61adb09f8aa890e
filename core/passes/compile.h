#pragma once
// Compiles graphs into programs. compile.cpp lists the passes in order.
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "core/exec/program.h"
#include "core/passes/base/pass.h"
#include "core/ranks/stage_section.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_check.h"

namespace plait {

/// A graph that runs as written, with all its outputs in order.
struct PlainModel {
  std::shared_ptr<const Program> program;
  DecoderInterface interface;  ///< indices of ids, past and present, if the graph is a language model
};
PlainModel compile_plain(Graph graph, const CompileOptions& options);

/// Bytes of a rank of a pipeline stage.
struct StageBytes {
  int64_t weights = 0, cache = 0, adapters = 0;
  int64_t workspace = 0;  ///< of a step: the arena, and what the stage takes
  int64_t all() const { return weights + cache + adapters + workspace; }
};

/// A recognised decoder on ragged rows. Memory is planned for these bounds.
struct RaggedBounds {
  int64_t tokens = 512;     ///< of one step, over all its segments
  int64_t segments = 64;    ///< requests in one step
  int64_t rows = 64;        ///< tokens whose logits are computed in one step
  int64_t edits = 1 << 16;  ///< of logits, in one step
  int64_t page_tokens = 32;
  std::vector<int64_t> pages;  ///< of each pool: entries of its page arrays
  int64_t states = 0;          ///< slots of states
};
struct RaggedModel {
  /// Of the rank's pipeline stage, if there are several; null if the decoder was not recognised.
  std::shared_ptr<const Program> program;
  std::shared_ptr<const Program> hidden_program;  ///< ends at the hidden state; null if there is none
  Decoder decoder;
  Mesh mesh;
  ShardPlan plan;  ///< on a mesh of several ranks
  int64_t token_multiple =
      1;  ///< the number of a step's tokens is a multiple of this; those of segment -1 are padding
  /// One of the rows that a State has along its first dim: a page, a slot.
  struct Row {
    DType dtype = DType::none;
    Shape part;  ///< of this rank, and of those that share the row with it
  };
  std::map<std::string, Row, std::less<>> rows;  ///< by key of the Store; of all stages

  // Of a pipeline.
  StageOptions stages;
  std::vector<StageCut> cut;            ///< by stage; empty: there is one
  std::vector<StageBytes> stage_bytes;  ///< by stage, with StageOptions::rank_bytes
  StageSection section;                 ///< the rank's: of `program`, and with its messages of `hidden_program`
  std::string graph_fingerprint;        ///< of the graph that is cut
  /// The groups of the programs of all stages, equally many and in the same order on all ranks. Without stages: program->groups.
  std::vector<std::vector<int32_t>> groups;
};
/// `bounds` is called once the decoder is recognised, cut and sharded, for each cut that is tried: the number of pages depends on it.
/// Throws Error(invalid_argument) if CompileOptions::stages are not those of the mesh, or the graph cannot be cut so;
/// Error(out_of_memory) if no cut is found whose stages have enough with StageOptions::rank_bytes, with the bytes of the best.
RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& bounds);

/// Runs only the passes up to raise, for `plait inspect`: needs no bounds.
Decoder recognise(Graph graph, const CompileOptions& options);

/// What ranks of the mesh hold of a raised decoder, by passes stage and shard, as annotations of its file. `file`: the imported
/// graph, whose own stages count if options.stages.from_file. Weights that cannot be annotated are listed in `notes`. Throws as
/// these passes do.
DeviceConfiguration planned_configuration(const Graph& file, const Graph& raised, const CompileOptions& options,
                                          std::vector<std::string>& notes);

// For core/passes/train/compile_training.cpp too.
/// Runs the passes up to raise. False: the graph is not recognised, for the reason context.decoder.why_not.
bool run_recognition(Graph& graph, PassContext& context);
/// Keeps the pipeline stages that the file annotates.
void note_file_stages(const Graph& graph, PassContext& context);
/// The axes of the graphs' collectives. `graphs` are not split into stages, so all ranks find the same.
std::set<std::string> collective_axes(std::span<const Graph* const> graphs);
/// The rank's groups along each of these.
std::vector<std::vector<int32_t>> groups_along(const std::set<std::string>& axes, const Mesh& mesh, int64_t rank);
/// Sets the size that memory is planned for, and the typical size for cost estimates.
void bound_symbol(Graph& graph, std::string_view name, int64_t typical, int64_t bound);

}  // namespace plait
