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

/// The programs of a trainer, which share the Store's arrays.
enum class TrainingProgram : uint8_t {
  /// One micro-batch: a ragged row of documents. Inputs: `ids` i64 [1, t], `positions` and `segments` i32 [1, t],
  /// `rows` i32 [1, r] (tokens with labels), `labels` i32 [1, r], `weights` f32 [1, r] (of each loss in the step's);
  /// with dropout `keys`, and with a prefix the positions after it (Places in core/train/data/packing.h). Output 0 is
  /// the sum of the losses, each times its weight; gradients are added to the Store's.
  accumulate,
  /// `accumulate` for a step's last micro-batch, followed by `norm` as output 1: only if ranks reduce gradients once
  /// a step and may do so during the backward pass.
  settle,
  /// `accumulate` without gradients. Output 0 is the same, output 1 each label's loss, f32 [1, r].
  evaluate,
  /// L2 norm of all gradients, f32 [].
  norm,
  /// The optimizer step. Inputs, f32 []: `scale` (of the gradients), `rate` (learning rate), and for AdamW
  /// `correction1` and `correction2` (1 - beta^step). Zeros the gradients.
  update,
  /// With TrainingOptions::host_loss. Inputs of `accumulate` without `labels` and `weights`. Output 0 is the logits
  /// of all data ranks, f32 [1, data ranks * r, v], on each rank.
  forward,
  /// `forward` with the input `gradients`, of a loss with respect to the row's logits, f32 [1, r, v]; gradients are
  /// added to the Store's.
  backward,
};
std::string_view program_name(TrainingProgram program);

/// A recognised decoder, or a graph with its own loss, compiled for training.
struct TrainingModel {
  /// With several pipeline stages only `norm` and `update`, of what the rank holds, if that is anything.
  std::map<TrainingProgram, std::shared_ptr<const Program>> programs;
  /// With several pipeline stages: the sections of those that the rank holds, of `accumulate`, `evaluate`, `forward` and
  /// `backward`.
  std::map<TrainingProgram, std::vector<StageSection>> sections;
  bool has(TrainingProgram name) const { return programs.contains(name); }
  /// Throws Error(internal) for one that was not compiled.
  const Program& program(TrainingProgram name) const;

  std::vector<TrainedParameter> parameters;
  Decoder decoder;
  Mesh mesh;
  /// With TrainingOptions::loss, whose programs take the graph's own inputs: inputs whose first dim is split over
  /// data ranks.
  std::set<std::string, std::less<>> spread_inputs;
  /// On several ranks: shardings of what training writes, by key of the Store. A rank's row is [1, t] of its own
  /// documents, with equal numbers of tokens and labels on all ranks. Partial gradients are reduced into
  /// store_keys::reduced_gradient when the norm is computed, and must be zeroed then.
  std::map<std::string, Sharding, std::less<>> places;
  ShardPlan plan;  ///< of `accumulate`
  int64_t token_multiple = 1;  ///< of a decoder: as RaggedModel's, of the tokens of a rank's row

  // Of a pipeline. The same on all ranks, but for `groups`.
  StageOptions stages;
  std::vector<StageCut> cut;     ///< by stage; empty: there is one
  std::vector<StageEdge> edges;  ///< which stages feed which
  /// By parameter's key the pipeline coordinates of the ranks that hold it, ascending, if not all do. Several holders of a
  /// parameter sum their gradients once a step.
  std::map<std::string, std::vector<int32_t>, std::less<>> holders;
  bool holds(const TrainedParameter& parameter, int64_t coordinate) const;
  /// The groups of this rank that any program has, as world ranks: equally many on all ranks, in the same order.
  std::vector<std::vector<int32_t>> groups;
  std::string graph_fingerprint;  ///< of the graph that is cut into stages
};
/// With TrainingOptions::gradients false only `evaluate` and `forward` are compiled, and no node needs a gradient.
/// Throws Error: unsupported for a graph that is not recognised, with the reason, for a node without a gradient on a
/// path to what is trained; invalid_argument if nothing is trained, a pattern matches nothing, or the mesh has pipeline ranks
/// and CompileOptions::stages none.
TrainingModel compile_training(Graph graph, const CompileOptions& options, const TrainingOptions& training);
/// For several ranks of a mesh: compiles what they have in common, whatever `options.rank` is. The result compiles the rest
/// for the rank of the options it is given, which differ in rank, log, dump and progress only; ranks may do so at once.
/// `options` and `training` must outlive it.
std::function<TrainingModel(const CompileOptions&)> training_compiler(Graph graph, const CompileOptions& options,
                                                                      const TrainingOptions& training);

/// Runs only the passes up to raise, for `plait inspect`: needs no bounds.
Decoder recognise(Graph graph, const CompileOptions& options);

/// What ranks of the mesh hold of a raised decoder, by passes stage and shard, as annotations of its file. `file`: the imported
/// graph, whose own stages count if options.stages.from_file. Weights that cannot be annotated are listed in `notes`. Throws as
/// these passes do.
DeviceConfiguration planned_configuration(const Graph& file, const Graph& raised, const CompileOptions& options,
                                          std::vector<std::string>& notes);

// Shared by compile.cpp and compile_training.cpp.
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
