#pragma once
// Appends nodes to an inferred graph and infers their types: for gradients, and for passes that write arithmetic.
#include <functional>
#include <memory>
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
  /// `name`: of new nodes, for messages. All arguments but the name must outlive the builder.
  GraphBuilder(const OpSet& ops, Graph& graph, Knowledge& knowledge, std::string name = {}, int32_t stage = 0)
      : ops_(ops), graph_(graph), knowledge_(knowledge), name_(std::move(name)), stage_(stage) {}

  // Copies, since nodes are added while they are in use.
  Type type(ValueId id) const { return graph_.value(id).type; }
  Dims dims(ValueId id) const;  ///< throws Error(unsupported) if the rank is unknown
  /// The tensor of a constant value; null for others.
  const Tensor* constant(ValueId id) const { return graph_.constant(id); }
  /// The elements of an integer constant; nullopt for others.
  std::optional<std::vector<int64_t>> constants(ValueId id) const;

  /// Appends a node with inferred types; returns its only output.
  ValueId add(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// Appends a node with several outputs; no_value for unused ones.
  std::vector<ValueId> add_all(std::string_view op, std::vector<ValueId> inputs, const std::vector<bool>& made,
                               Attributes attributes = {});
  using Bodies = std::vector<std::pair<std::string, std::shared_ptr<Graph>>>;
  /// Appends an If or a Loop with `count` outputs.
  std::vector<ValueId> add_with_bodies(std::string_view op, std::vector<ValueId> inputs, size_t count, Bodies bodies,
                                       Attributes attributes = {});
  /// A scalar of the dtype of `like`.
  ValueId number(double value, ValueId like);
  /// i64 [n].
  ValueId integers(std::vector<int64_t> values);
  /// The dims of `like` as i64 [rank], which may be unknown.
  ValueId sizes(ValueId like);
  ValueId sizes(const Dims& dims);
  /// A size as a scalar of the dtype of `like`.
  ValueId count(const Dim& size, ValueId like);
  /// Zeros of the type of `like`, whose rank may be unknown; of a list, for each part.
  ValueId zeros(ValueId like);

  /// Whether the value is a list of tensors, as far as the importer or `add_gradients` found.
  bool is_list(ValueId id) const { return graph_.value(id).kind != ValueKind::tensor; }
  /// A list of `dtype` without parts.
  ValueId empty_list(DType dtype);
  /// What the body's nodes make of parts i of the lists, for every i.
  using OfParts = std::function<ValueId(GraphBuilder& body, const std::vector<ValueId>& parts)>;
  /// The list of these. The lists have equally many parts, which the body may ask for again: an op on a sequence that ONNX lacks.
  ValueId list_of(const std::vector<ValueId>& lists, const OfParts& make);
  /// These as one tensor, [parts, ...].
  ValueId stack_of(const std::vector<ValueId>& lists, const OfParts& make);

  /// Of lists: part by part.
  ValueId plus(ValueId a, ValueId b);
  ValueId minus(ValueId a, ValueId b) { return add("Sub", {a, b}); }
  ValueId times(ValueId a, ValueId b) { return add("Mul", {a, b}); }
  ValueId over(ValueId a, ValueId b) { return add("Div", {a, b}); }
  ValueId negative(ValueId a) { return add("Neg", {a}); }
  /// The sum along axes, which are kept with size 1.
  ValueId sum(ValueId a, std::vector<int64_t> axes);
  /// Reshaped to these dims, with equally many elements.
  ValueId reshaped(ValueId a, const Dims& to);
  ValueId reshaped(ValueId a, ValueId like);
  /// Broadcast, as in NumPy, to the dims of `like`.
  ValueId expanded(ValueId a, ValueId like);
  /// In the dtype of `like`.
  ValueId cast(ValueId a, ValueId like);
  /// Gradient of a broadcast operand: summed over the broadcast dims, with the dims of `like`.
  ValueId summed_to(ValueId a, ValueId like);

 protected:
  /// A size as i64 [1], by those of values that nodes made.
  ValueId made_size(const Dim& size);
  ValueId size_of_symbol(SymbolId symbol);
  /// `summed_to` where a rank is found only when it runs.
  ValueId summed_by_shape(ValueId a, ValueId like);
  ValueId over_parts(const std::vector<ValueId>& lists, const OfParts& make, bool stacks);

  const OpSet& ops_;
  Graph& graph_;
  Knowledge& knowledge_;
  std::string name_;
  int32_t stage_;
};

}  // namespace plait
