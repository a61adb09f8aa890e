#pragma once
// Gradients: an op's schema row may define the nodes that compute the gradients of its inputs from those of its
// outputs, and add_gradients walks a graph backwards with these rows (reverse accumulation; Griewank and Walther
// 2008, chapter 3).
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "core/graph/graph_builder.h"

namespace plait {

/// One node's gradient rule: its view of the node, and the builder for new nodes. Operands are numbered as in the
/// node; a gradient has the type of its value.
class GradientContext : public GraphBuilder {
 public:
  /// Of node `at` of the graph.
  GradientContext(const OpSet& ops, Graph& graph, size_t at, std::vector<bool> wanted, std::vector<ValueId> gradients,
                  Knowledge& knowledge);

  /// As it was when its gradient was asked for.
  const Node& node() const { return node_; }
  const OpSet& ops() const { return ops_; }
  Graph& graph() { return graph_; }
  /// Replaces the node by one that makes more: of a loop, what its iterations began with. Its outputs keep their types.
  void replace(Node node);
  const Attributes& attributes() const { return node_.attributes; }
  /// no_value if it is absent.
  ValueId input(size_t k) const { return k < node_.inputs.size() ? node_.inputs[k] : no_value; }
  ValueId output(size_t k = 0) const { return k < node_.outputs.size() ? node_.outputs[k] : no_value; }
  /// Of output k; no_value if nothing depends on it. At least one output has a gradient.
  ValueId gradient(size_t k = 0) const { return k < gradients_.size() ? gradients_[k] : no_value; }
  /// Whether the gradient of input k is wanted.
  bool wants(size_t k) const { return k < wanted_.size() && wanted_[k]; }
  /// Adds to the gradient of input k, if it is wanted.
  void give(size_t k, ValueId gradient);
  /// The same with the dims of input k, where those of the gradient are found only when it runs.
  void give_as_is(size_t k, ValueId gradient);
  const std::vector<std::pair<size_t, ValueId>>& given() const { return given_; }

  /// The node's attributes with these names, as far as present.
  Attributes kept(std::initializer_list<std::string_view> names) const;

  /// Throws Error(unsupported): this use of the op has no gradient. The caller adds the node to the message.
  [[noreturn]] static void fail(std::string message, std::string hint = {});

 private:
  const size_t at_;
  const Node node_;
  const std::vector<bool> wanted_;
  const std::vector<ValueId> gradients_;
  std::vector<std::pair<size_t, ValueId>> given_;
};

/// For a row whose outputs are piecewise constant (Floor, Less, ArgMax): no gradient.
void no_gradient(GradientContext& context);

/// An initial gradient of the walk: of the loss (1), or computed by the caller.
struct GradientSeed {
  ValueId value = no_value, gradient = no_value;
};

/// By value: whether it depends smoothly on one of `wanted`, by the floats in between.
std::vector<bool> depending(const Graph& graph, std::span<const ValueId> wanted);

/// Appends the nodes that compute the gradients of `wanted`, and returns these in order; no_value if no seed depends
/// on the value. The graph must be inferred. Contributions to one value are added in reverse node order. New nodes
/// get the names of the nodes whose gradient they compute. Throws Error(unsupported) if a node in between has no
/// gradient, naming node and op.
std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted);

}  // namespace plait
