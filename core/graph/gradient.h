#pragma once
// Gradients: each op's schema row may say what nodes compute the gradients of its inputs from those of its outputs, and
// add_gradients walks a graph backwards with these rows (reverse accumulation; Griewank and Walther 2008, chapter 3).
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/infer.h"
#include "core/graph/schema.h"

namespace plait {

/// What a row's `gradient` sees of one node, and where it builds nodes. Operands are counted as in the node; a gradient has
/// the type of the value that it belongs to.
class GradientContext {
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

  // Copies: nodes are added while they are in use.
  Type type(ValueId id) const { return graph_.value(id).type; }
  Dims dims(ValueId id) const;  ///< throws Error(unsupported) where the rank is not known
  /// The number that the value is, where it is a constant; null elsewhere.
  const Tensor* constant(ValueId id) const { return graph_.constant(id); }
  /// The elements of a constant of integers; nullopt for what is none.
  std::optional<std::vector<int64_t>> constants(ValueId id) const;

  /// A node behind all others, with its types inferred; its one output.
  ValueId add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// One with several outputs, no_value for those that are not made.
  std::vector<ValueId> add_all(std::string_view op, std::vector<ValueId> inputs, const std::vector<bool>& made,
                               Attributes attributes = {});
  /// A scalar of the dtype of `like`.
  ValueId number(double value, ValueId like);
  /// i64 [n].
  ValueId integers(std::vector<int64_t> values);
  /// The dims of `like` as i64 [rank].
  ValueId sizes(ValueId like);
  ValueId sizes(const Dims& dims);
  /// A size as a scalar of the dtype of `like`.
  ValueId count(const Dim& size, ValueId like);
  /// Zeros of the type of `like`.
  ValueId zeros(ValueId like);

  ValueId plus(ValueId a, ValueId b) { return add("Add", {a, b}); }
  ValueId minus(ValueId a, ValueId b) { return add("Sub", {a, b}); }
  ValueId times(ValueId a, ValueId b) { return add("Mul", {a, b}); }
  ValueId over(ValueId a, ValueId b) { return add("Div", {a, b}); }
  ValueId negative(ValueId a) { return add("Neg", {a}); }
  /// The sum along axes, which stay with size 1.
  ValueId sum(ValueId a, std::vector<int64_t> axes);
  /// The value with these dims, of as many elements.
  ValueId reshaped(ValueId a, const Dims& to);
  ValueId reshaped(ValueId a, ValueId like) { return reshaped(a, dims(like)); }
  /// Repeated, as NumPy broadcasts, to the dims of `like`.
  ValueId expanded(ValueId a, ValueId like);
  /// In the dtype of `like`.
  ValueId cast(ValueId a, ValueId like);
  /// A gradient of a broadcast operand: summed over what `like` was repeated along, with the dims of `like`.
  ValueId summed_to(ValueId a, ValueId like);

  /// The node's own attributes of these names, as far as it has them.
  Attributes kept(std::initializer_list<std::string_view> names) const;

  /// Throws Error(unsupported): this use of the op has no gradient. The caller adds the node.
  [[noreturn]] static void fail(std::string message, std::string hint = {});

 private:
  const OpSet& ops_;
  Graph& graph_;
  const Node node_;
  const std::vector<bool> wanted_;
  const std::vector<ValueId> gradients_;
  Knowledge& knowledge_;
  std::vector<std::pair<size_t, ValueId>> given_;
};

/// For a row whose outputs do not change with its inputs but at single points (Floor, Less, ArgMax): no gradient flows.
void no_gradient(GradientContext& context);

/// A gradient that is there before the walk begins: of the loss (1), or what the caller computed of another value.
struct GradientSeed {
  ValueId value = no_value, gradient = no_value;
};

/// Adds the nodes that compute the gradients of `wanted`, behind all others, and returns them in that order; no_value for a
/// value that no seed depends on. The graph must be inferred. Several contributions to one value are added up in the order
/// in which the nodes are met, from the last to the first. Nodes keep the names of those whose gradient they compute. Throws
/// Error(unsupported) when a node between has no gradient, naming node and op.
std::vector<ValueId> add_gradients(const OpSet& ops, Graph& graph, std::span<const GradientSeed> seeds,
                                   std::span<const ValueId> wanted);

}  // namespace plait
