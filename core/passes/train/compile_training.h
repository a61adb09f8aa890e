#pragma once
// Compiles a graph into the programs of a trainer. compile_training.cpp lists the passes in order.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/passes/compile.h"

namespace plait {

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

}  // namespace plait
