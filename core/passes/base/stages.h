#pragma once
// Pipeline stages: into how many a graph is cut, where, and which ranks run them.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace plait {

/// What passes know of a pipeline. Its schedule, an order of what they make, is no concern of theirs.
struct StageOptions {
  /// seats[stage]: coordinates on the mesh's axis `pipeline` of the ranks that hold the stage. Empty: there is one stage.
  std::vector<std::vector<int32_t>> seats;
  /// Layers of each stage (of a graph without layers: nodes); embeddings belong to the first and the head to the last, which
  /// may have no layer. Empty: balanced by work and memory.
  std::vector<int64_t> layers;
  /// Of a generator, by stage: the most bytes that a rank may hold of weights, cache and workspace. The graph is then cut so that
  /// they suffice, instead of balanced, where `layers` is empty. Empty: no limit.
  std::vector<int64_t> rank_bytes;
  bool from_file = false;       ///< cut as the file's annotations specify (Node::stage)
  bool whole_backward = true;   ///< make a section of the whole backward pass of a stage
  bool split_backward = false;  ///< make sections of its input gradients and of its weight gradients

  int32_t count() const { return std::max<int32_t>(1, static_cast<int32_t>(seats.size())); }
  bool holds(int64_t coordinate, int32_t stage) const {
    if (seats.empty()) return true;
    const auto& of = seats[static_cast<size_t>(stage)];
    return std::find(of.begin(), of.end(), coordinate) != of.end();
  }
};

/// What a stage got when the graph was cut.
struct StageCut {
  int64_t layers = 0;  ///< of a graph without layers: nodes
  int64_t units = 0;   ///< layers, and what stands before and after them (core/passes/stage/stage.h)
  double work = 0;     ///< floating point operations of its forward pass, at the symbols' typical sizes
  double bytes = 0;    ///< of the weights that it reads
  std::vector<std::string> parameters;  ///< keys of trained ones that it reads, ascending
};

}  // namespace plait
