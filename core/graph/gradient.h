#pragma once
// Gradients: each op's schema row may say what nodes compute the gradients of its inputs from those of its outputs, and
// add_gradients walks a graph backwards with these rows (reverse accumulation; Griewank and Walther 2008, chapter 3).
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "core/graph/graph_builder.h"

namespace plait {

/// What a row's `gradient` sees of one node, and where it builds nodes. Operands are counted as in the node; a gradient has
/// the type of the value that it belongs to.
class GradientContext : public GraphBuilder {
 public:
  GradientContext(const OpSet& ops, Graph& graph, Node node, std::vector<bool> wanted, std::vector<ValueId> gradients,
                  Knowledge& knowledge);

  const Node& node() const { return node_; }
  const Attributes& attributes() const { return node_.attributes; }
  /// no_value where it is absent.
  ValueId input(size_t k) const { return k < node_.inputs.size() ? node_.inputs[k] : no_value; }
  ValueId output(size_t k = 0) const { return k < node_.outputs.size() ? node_.outputs[k] : no_value; }
  /// Of output k; no_value where nothing depends on it. At least one output has one.
  ValueId gradient(size_t k = 0) const { return k < gradients_.size() ? gradients_[k] : no_value; }
  /// Whether the gradient of input k is asked for.
  bool wants(size_t k) const { return k < wanted_.size() && wanted_[k]; }
  /// Adds to the gradient of input k; nothing where it is not wanted.
  void give(size_t k, ValueId gradient);
  const std::vector<std::pair<size_t, ValueId>>& given() const { return given_; }

  /// The node's own attributes of these names, as far as it has them.
  Attributes kept(std::initializer_list<std::string_view> names) const;

  /// Throws Error(unsupported): this use of the op has no gradient. The caller adds the node.
  [[noreturn]] static void fail(std::string message, std::string hint = {});

 private:
  const Node node_;
  const std::vector<bool> wanted_;
  const std::vector<ValueId> gradients_;
  std::vector<std::pair<size_t, ValueId>> given_;
};

/// For a row whose outputs do not change with its inputs but at single points (Floor, Less, ArgMax): no gradient flows.
void no_gradient(GradientContext& context);

/// The name of an operand that training takes as it is, though it may be of floats: scales of quantised weights, tables of
/// angles. "": it has a gradient, where the op has.
std::string_view fixed_operand(const OpSchema& row, size_t operand);

/// A gradient that is there before the walk begins: of the loss (1), or what the caller computed of another value.
struct GradientSeed {
  ValueId value = no_value, gradient = no_value;
};

/// Adds the nodes that compute the gradients of `wanted`, behind all others, and returns them in that order; no_value for a
/// value that no seed depends on. The graph must be inferred. Several contributions to one value are added up in the order
/// in which the nodes are met, from the last to the first. Nodes keep the names of those whose gradient they compute.
/// Throws Error(unsupported) when a node between has no gradient, naming node and op.
std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted);

}  // namespace plait
