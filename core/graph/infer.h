#pragma once
// Inference: types and sizes of values, from the schema's shape rules and dims rules (core/graph/schema.h).
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/base/tensor.h"
#include "core/graph/schema.h"

namespace plait {

/// Facts about values in addition to their types.
struct Knowledge {
  /// By ValueId, nullopt (or past the end) if unknown: the elements of integer and bool values of rank 0 or 1, as far
  /// as shape arithmetic determines them. Constants need no entry.
  std::vector<std::optional<Dims>> contents;
  /// Differently written sizes may differ at run time, and a symbol may be 1: broadcasting two of them, or a Squeeze
  /// without axes, leaves a size or rank open until the run. If false, such sizes are assumed equal and greater than
  /// 1, which recognising a decoder needs, and other runs are rejected.
  bool exact = false;
  /// The sum of these symbols is at most `most`: the tokens so far, where a table of positions has no more rows.
  struct SumBound {
    std::vector<SymbolId> symbols;
    int64_t most = 0;
    /// An upper bound of a size; nullopt if it has none.
    std::optional<int64_t> of(const Dim& size) const;
  };
  std::optional<SumBound> sum_bound;
  /// Goes into the names of symbols made for unknown sizes, so that those of a body are not those of its graph.
  std::string scope;
};

/// What is true of the parts of two lists.
PartDims merged(const PartDims& a, const PartDims& b);

/// Integer constants with more elements have no contents: no shape is that long.
constexpr int64_t max_contents = 1024;

/// Infers the outputs of one node of `graph` and writes their types; dims that a shape rule leaves open follow from
/// the op's dims rule. A data-dependent size is a symbol named after the value, always the same; a size known from
/// the value's previous type (the file's value_info) has priority. Dims that cannot be inferred keep their previous
/// values. Throws Error, naming the node, if the node does not fit its schema or sizes contradict each other.
void infer_node(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge);

/// The part of `infer_node` for an If, Loop or Scan that passed check_node (infer_bodies.cpp). Throws Error without
/// the node's name.
void infer_with_bodies(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge);

/// Infers all nodes in order. The bodies of If, Loop and Scan are inferred in place from their node's operands; an
/// output of an If has the dims on which both branches agree, other sizes are new symbols.
void infer_graph(const OpSet& ops, Graph& graph, Knowledge& knowledge);

/// Types of one node's outputs for existing operands (`inputs`: one view per input, an absent one has dtype none;
/// `outputs` is resized to the node's; unused ones are none). `measure` returns the shape of an output whose sizes
/// depend on the operands' elements; without it such a size is an Error. `read`: becomes whether the types depend on the elements of
/// each operand, and not only on its type. Throws Error, naming the node, also for
/// sizes beyond 63 bits of bytes; a node with bodies is Error(internal), since its types are known only after the
/// run.
void infer_concrete(const OpSchema& schema, const Node& node, std::span<const TensorView> inputs,
                    std::vector<std::pair<DType, Shape>>& outputs,
                    const std::function<Shape(int output)>& measure = nullptr, std::vector<bool>* read = nullptr);

}  // namespace plait
