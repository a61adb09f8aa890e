#pragma once
// Runs a graph over samples piece by piece, so that each piece sees what the changed pieces before it give.
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/passes/compile.h"

namespace plait {

class ThreadPool;

/// Keeps, for each sample, the values that nodes to come will read. Not thread-safe.
class Replay {
 public:
  /// `inputs`: for each sample the graph's inputs, in order; the same shapes for all. `graph` and `pool` outlive it. `ends`: values
  /// that the last call of `advance` may ask for; nodes that none of them needs are not run.
  Replay(const Graph& graph, const CompileOptions& compile, std::vector<std::vector<Tensor>> inputs,
         std::span<const ValueId> ends, ThreadPool& pool);

  /// Runs all samples up to these values, [..., k] of floats, and no further; for each the sum of x^T x over its rows x, f32 [k, k].
  /// Throws the errors of compile_plain and Executor::run, and Error(cancelled) if `progress` was, which may be null.
  std::vector<Tensor> advance(std::span<const ValueId> values, LoadProgress* progress);

  /// From now on the node has this weight: f32 [n, k] of a product, [rows, width] of a lookup; its operands are of `dtype`.
  void replace(int32_t node, const Tensor& weight, DType dtype);

 private:
  struct Piece {
    Graph graph;
    std::vector<ValueId> inputs, keeps;
  };
  std::set<int32_t> needed_by(std::span<const ValueId> values) const;
  Piece piece_for(std::span<const ValueId> values);
  ValueId add_gram(Graph& piece, ValueId x) const;

  Graph graph_;
  CompileOptions compile_;
  ThreadPool& pool_;
  std::vector<int32_t> producer_;
  std::set<int32_t> left_;                       ///< nodes that are to run
  std::vector<std::map<ValueId, Tensor>> kept_;  ///< by sample
};

}  // namespace plait
