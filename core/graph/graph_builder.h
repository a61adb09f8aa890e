#pragma once
// Adds nodes to a graph that is inferred, and keeps it so: for gradients, and for passes that write arithmetic.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/infer.h"
#include "core/graph/schema.h"

namespace plait {

class GraphBuilder {
 public:
  /// `name`: of the nodes that are added, for messages. All but the name must outlive it.
  GraphBuilder(const OpSet& ops, Graph& graph, Knowledge& knowledge, std::string name = {}, int32_t stage = 0)
      : ops_(ops), graph_(graph), knowledge_(knowledge), name_(std::move(name)), stage_(stage) {}

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

 protected:
  const OpSet& ops_;
  Graph& graph_;
  Knowledge& knowledge_;
  std::string name_;
  int32_t stage_;
};

}  // namespace plait
