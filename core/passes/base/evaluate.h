#pragma once
// Evaluates parts of a graph at compile time with the reference kernels: constant folding, and the probes by which
// `raise` finds out what a subgraph computes.
#include <map>
#include <vector>

#include "core/exec/kernel.h"
#include "core/graph/infer.h"
#include "core/passes/base/pass.h"

namespace plait {

/// Evaluates one node without bodies. `symbols` are the values of the graph's symbols (for plait.Sizes), may be
/// empty. Absent inputs are Tensors of dtype none. Steps are subtracted from the context's budget. Throws
/// Error(unsupported) if an output needs more than `budget` bytes or no steps are left, and the errors of the shape
/// rule and the kernel.
std::vector<Tensor> evaluate_node(const PassContext& context, const Graph& graph, const Node& node,
                                  std::span<const Tensor> inputs, std::span<const int64_t> symbols, int64_t budget);

/// Values of a graph, computed on demand. Graph and context must outlive it, and the graph must not change.
class Evaluator {
 public:
  Evaluator(const PassContext& context, const Graph& graph, int64_t budget = int64_t{1} << 28);

  void bind(ValueId id, Tensor tensor) { values_[id] = std::move(tensor); }
  void bind_symbol(SymbolId id, int64_t value) { symbols_[static_cast<size_t>(id)] = value; }
  /// Throws Error(invalid_argument) if the value depends on an unbound input.
  Tensor value(ValueId id);

 private:
  const PassContext& context_;
  const Graph& graph_;
  int64_t budget_;
  std::vector<int32_t> producer_;
  std::vector<int64_t> symbols_;
  std::map<ValueId, Tensor> values_;
};

/// A constant of one element, as a double.
std::optional<double> scalar_of(const Graph& graph, ValueId id);

/// The symbols that a plait.Sizes node writes; see core/passes/normalize/fold.cpp.
Dims sizes_of(const Node& node, SymbolTable& symbols);
/// Makes `node` a plait.Sizes node that writes `elements` (a scalar if `scalar`).
void make_sizes(Node& node, std::span<const Dim> elements, bool scalar, const SymbolTable& symbols);
/// Replaces a symbol in the sizes of all values and of plait.Sizes nodes.
void substitute(Graph& graph, SymbolId symbol, const Dim& by);

}  // namespace plait
