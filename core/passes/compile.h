#pragma once
// From a graph to programs. compile.cpp holds the list of passes and reads top to bottom.
#include <map>
#include <memory>
#include <set>

#include "core/exec/program.h"
#include "core/passes/base/pass.h"
#include "core/schedule/schedule.h"
#include "core/schedule/schedule_check.h"
#include "core/schedule/stage_message.h"

namespace plait {

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
  int64_t token_multiple =
      1;  ///< a step's tokens are so many times some number; those of segment -1 count for nothing
};
/// `bounds` is asked once the decoder is recognised, with what was found: the number of pages depends on it.
RaggedModel compile_ragged(Graph graph, const CompileOptions& options,
                           const std::function<RaggedBounds(const Decoder&)>& bounds);

/// The programs of a trainer, which share the Store's arrays.
enum class TrainingProgram : uint8_t {
  /// One micro-batch: a ragged row of documents. Inputs: `ids` i64 [1, t], `positions` and `segments` i32 [1, t], `rows` i32
  /// [1, r] (tokens that predict something), `labels` i32 [1, r] (what), `weights` f32 [1, r] (of each loss in the whole
  /// step's); with dropout `keys`, and with a prefix where tokens are placed after it (Places in core/train/data/packing.h). Output 0
  /// is the sum of the losses, each times its weight; gradients are added to the Store's.
  accumulate,
  /// `accumulate` of a step's last micro-batch, and `norm`, which is output 1: only where ranks reduce gradients once a step and
  /// may do so during the backward pass.
  settle,
  /// `accumulate` without gradients. Output 0 is the same, output 1 each target's loss, f32 [1, r].
  evaluate,
  /// The norm of all gradients as one vector, f32 [].
  norm,
  /// The end of a step. Inputs, f32 []: `scale` (of the gradients), `rate` (of learning), and of AdamW `correction1` and
  /// `correction2` (1 - beta^step). Gradients are zeros after it.
  update,
  /// With TrainingOptions::host_loss. Inputs of `accumulate` without `labels` and `weights`. Output 0 is the logits of all data
  /// ranks, f32 [1, data ranks * r, v], on each rank.
  forward,
  /// `forward` with the input `gradients`, of a loss by the row's logits, f32 [1, r, v]; gradients are added to the Store's.
  backward,
};
std::string_view program_name(TrainingProgram program);

/// A section of a stage, for one micro-batch (core/passes/train/split.h). Its inputs are those of the whole program.
struct StageSection {
  int32_t stage = 0;
  Action::Kind kind = Action::Kind::forward;
  std::shared_ptr<const Program> program;
  /// By output of the program, from 0 on: the number that it has in the whole program. What is given, slots and sums follow.
  std::vector<int32_t> results;
  std::vector<StageMessage> takes, gives;
};

/// A recognised decoder, or a graph with a loss of its own, with all that its training needs.
struct TrainingModel {
  /// With several pipeline stages only `norm` and `update`, of what the rank holds, if that is anything.
  std::map<TrainingProgram, std::shared_ptr<const Program>> programs;
  /// With several pipeline stages: the sections of those that the rank holds, of `accumulate`, `evaluate`, `forward` and
  /// `backward`.
  std::map<TrainingProgram, std::vector<StageSection>> sections;
  bool has(TrainingProgram name) const { return programs.contains(name); }
  /// Throws Error(internal) for one that was not made.
  const Program& program(TrainingProgram name) const;

  std::vector<TrainedParameter> parameters;
  Decoder decoder;
  Mesh mesh;
  /// With TrainingOptions::loss, whose programs take the graph's own inputs: those of which a data rank gets its part of the first
  /// dim.
  std::set<std::string, std::less<>> spread_inputs;
  /// On several ranks: the sharding of what training writes, by key of the Store. A rank's row is [1, t] of its own documents, and
  /// all ranks' rows have as many tokens and targets. Gradients of which ranks hold summands are reduced into
  /// store_keys::reduced_gradient when the norm is computed, and the summands have to be zeroed then.
  std::map<std::string, Sharding, std::less<>> places;
  ShardPlan plan;  ///< of `accumulate`

  // Of a pipeline. The same on all ranks, but for `groups`.
  StageOptions stages;
  std::vector<StageEdge> edges;  ///< which stages feed which
  /// By parameter's key the pipeline coordinates of the ranks that hold it, ascending, if not all do. Several holders of a
  /// parameter sum their gradients once a step.
  std::map<std::string, std::vector<int32_t>, std::less<>> holders;
  bool holds(const TrainedParameter& parameter, int64_t coordinate) const;
  /// The groups of this rank that any program has, as world ranks: equally many on all ranks, in the same order.
  std::vector<std::vector<int32_t>> groups;
  std::string graph_fingerprint;  ///< of the graph that is cut into stages
};
/// With TrainingOptions::gradients false only `evaluate` and `forward` are made, and no gradient is required of any node.
/// Throws Error: unsupported for a graph that is not recognised, with the reason, for a node without a gradient on the way to what is
/// trained, and for a mesh with other axes than `data` and `tensor`; invalid_argument when nothing is to be trained, or a
/// pattern names nothing.
TrainingModel compile_training(Graph graph, const CompileOptions& options, const TrainingOptions& training);

/// Fingerprints of what raise finds need no bounds: the passes up to raise alone, for `plait inspect`.
Decoder recognise(Graph graph, const CompileOptions& options);

// Shared by compile.cpp and compile_training.cpp.
/// The passes up to raise. False: the graph is not recognised, and context.decoder.why_not is the reason.
bool run_recognition(Graph& graph, PassContext& context);
/// The size that memory is planned for, and the typical size that costs are computed with.
void bound_symbol(Graph& graph, std::string_view name, int64_t typical, int64_t bound);

}  // namespace plait
