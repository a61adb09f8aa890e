#pragma once
// Pass split: the graph of a micro-batch, cut into stages by plait.Cross, becomes sections that run one at a time: the forward
// pass of a stage, and its backward pass in one piece or two (Qi et al., "Zero Bubble Pipeline Parallelism", 2024).
#include <cstdint>
#include <map>
#include <vector>

#include "core/exec/program.h"
#include "core/graph/schema.h"
#include "core/schedule/schedule.h"
#include "core/schedule/stage_message.h"

namespace plait {

/// One section of a stage.
struct SectionGraph {
  Action::Kind kind = Action::Kind::forward;
  /// Inputs: the whole graph's, then slots that are read and messages that are taken. Outputs: `results`, what is given, slots
  /// that are written, and sums of gradients.
  Graph graph;
  std::map<ValueId, int32_t> slots;  ///< by value its number in StageGraphs::slots
  std::vector<int32_t> results;      ///< numbers of those outputs of the whole graph that are no sums
  std::vector<StageMessage> takes, gives;  ///< by ascending stage
};

struct StageGraphs {
  int32_t stage = 0;
  std::vector<Slot> slots;             ///< the same for all sections of the stage
  std::vector<SectionGraph> sections;  ///< those that have something to do
};

struct SplitOptions {
  int32_t stages = 1;
  /// By value of the graph: whether it is made of gradients. Empty: all is forward, as in an evaluation.
  std::vector<bool> backward = {};
  bool whole = true;   ///< make sections B
  bool halves = false;  ///< make sections I and W
};

/// Splits the graph; by stage. A weight gradient's section (W) has what leads to one parameter's sum only, from the first
/// product of two activations on; all else of the backward pass is I. What is computed again (Node::recomputed) belongs to the
/// sections that read it; so do views, and what depends on inputs or weights only, such as angles, sizes and weights that ranks
/// gather. A value that a later section reads is kept in a slot.
/// Throws Error(unsupported) for one whose size is known only when it is computed.
std::vector<StageGraphs> split(const Graph& graph, const OpSet& ops, const SplitOptions& options);

}  // namespace plait
