#pragma once
// Inference: types and sizes of values, from the shape rules and dims rules of the schema (core/graph/schema.h).
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/base/tensor.h"
#include "core/graph/schema.h"

namespace plait {

/// What is known of values beyond their types.
struct Knowledge {
  /// By ValueId, nullopt (or past the end) where unknown: the elements of integer and bool values of rank 0 or 1, as
  /// far as shape arithmetic goes. Constants need no entry.
  std::vector<std::optional<Dims>> contents;
  /// Sizes that are written differently may differ when the program runs, and a symbol may be 1: broadcasting two of them, or a
  /// Squeeze without axes, leaves a size or a rank that only a run tells. Otherwise they are taken for one size and for more than
  /// 1, which recognising a decoder needs, and a run that differs is refused.
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

/// Integer constants of more elements than this have no contents: no shape is that long.
constexpr int64_t max_contents = 1024;

/// Infers the outputs of one node of `graph` and writes their types; where a shape rule leaves dims open, they are
/// what the op's dims rule says. A size that only the data tell is a symbol named after the value, the same one each
/// time; it gives way to what the value's type said before (the file's value_info). Dims that cannot be inferred
/// leave those of before. Throws Error, naming the node, when the node does not fit its schema or sizes contradict
/// each other.
void infer_node(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge);

/// All nodes in order. The bodies of If, Loop and Scan are inferred from their node's operands, in place; an output
/// of an If has the dims on which both branches agree, other sizes are new symbols.
void infer_graph(const OpSet& ops, Graph& graph, Knowledge& knowledge);

/// Types of one node's outputs when its operands are there (`inputs`: one view an input, an absent one has dtype
/// none; `outputs` is resized to the node's; those nobody asked for are none). `measure` returns the shape of an output
/// with sizes that only the elements of the operands tell; without it such a size is an Error. Throws Error, naming the
/// node, also for sizes whose bytes leave 63 bits; a node with bodies is Error(internal), since only running it tells.
void infer_concrete(const OpSchema& schema, const Node& node, std::span<const TensorView> inputs,
                    std::vector<std::pair<DType, Shape>>& outputs,
                    const std::function<Shape(int output)>& measure = nullptr);

}  // namespace plait
