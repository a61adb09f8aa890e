#pragma once
// Pass stage: a graph becomes one of several pipeline stages, before gradients are added.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/passes/base/pass.h"

namespace plait {

/// Numbers the nodes by CompileOptions::stages and adds a plait.Cross on each edge between two stages, one for each value and
/// reading stage; so gradients add up on the reading stage and cross once. What depends on inputs and constants only
/// (angles, masks, sizes) gets stage -1: each stage that reads it computes it. A State of an adapter that several stages read
/// becomes one State a stage, of the same key. Nothing changes with one stage.
/// Throws Error(invalid_argument) for a cut that the graph cannot have, with the numbers.
void stage(Graph& graph, PassContext& context);

/// Of a generator: remakes Decoder::groups and pools for each stage, with the States, inputs and symbols that belong to them, and
/// notes the stages of recurrent states. Nothing changes with one stage.
void stage_pages(Graph& graph, PassContext& context);

/// Reads where to cut: "auto", "file", or the layers of each stage, as in "9,9". Throws Error(invalid_argument).
void read_cut(const std::string& text, StageOptions& out);

/// What can be cut apart, in the order in which tokens pass: what comes before the layers, each layer, what comes after them;
/// of a graph without layers each node.
struct StageUnits {
  struct Unit {
    double work = 0;   ///< floating point operations of the forward pass, at the symbols' typical sizes
    double bytes = 0;  ///< of the weights that it reads
    double cache = 0;  ///< bytes of a row of its pages and states, at the symbols' typical sizes
    /// By name the bytes of the other constants and States that it reads. Units of one stage share what has one name.
    std::map<std::string, double> held = {};
    bool joined = false;  ///< it shares pages with the unit before, and cannot be cut from it
  };
  std::vector<Unit> units;
  std::vector<int32_t> of_node;  ///< -1: of every stage that reads it
  bool layers = false;           ///< units are layers, with one more before and one after
};
StageUnits stage_units(const Graph& graph, const PassContext& context);

/// Of consecutive units [begin, end) as stage `stage`; infinite for what must not be.
using StageCost = std::function<double(size_t stage, size_t begin, size_t end)>;
/// How many consecutive units each stage gets, at least one, so that the largest cost is the least. Empty if joined units or
/// costs leave no cut. A dynamic program, exact: O(stages units^2). Needs as many units as stages.
std::vector<int64_t> least_cut(const std::vector<StageUnits::Unit>& units, size_t stages, const StageCost& cost);

/// How many consecutive units each stage gets: the least largest work of a rank, a stage's divided by its seats,
/// and among such cuts the least largest bytes. `seats`: their number, by stage. As least_cut.
std::vector<int64_t> balance(const std::vector<StageUnits::Unit>& units, const std::vector<size_t>& seats);

}  // namespace plait
