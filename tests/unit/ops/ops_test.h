#pragma once
// What the tests of the schema share: a graph that grows node by node, each inferred as it is added.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/infer.h"
#include "core/ops/ops.h"

namespace plait::test {

/// All ops, filled once.
inline const OpSet& all_ops() {
  static const OpSet ops = [] {
    OpSet out;
    register_ops(out);
    return out;
  }();
  return ops;
}

inline Dims parse_dims(std::string_view text, SymbolTable& symbols) {
  Dims out;
  for (const std::string& part : split(text, ' '))
    if (!part.empty()) out.push_back(Dim::parse(part, symbols));
  return out;
}

class Net {
 public:
  Graph graph;
  Knowledge known;

  /// An input of dims as "b s 64".
  ValueId input(std::string_view dims, DType dtype = DType::f32) {
    Dims parsed = parse_dims(dims, graph.symbols);
    graph.inputs.push_back(graph.add_value({}, {dtype, std::move(parsed)}));
    return graph.inputs.back();
  }
  /// An i64 constant of rank 1.
  ValueId ints(const std::vector<int64_t>& values) { return graph.add_constant(Tensor::of_ints(values)); }
  ValueId scalar(int64_t value) {
    return graph.add_constant(Tensor::of_ints(std::vector<int64_t>{value}).reshaped(Shape()));
  }
  ValueId weight(const Shape& shape, DType dtype = DType::f32) { return graph.add_constant(Tensor(dtype, shape)); }

  /// All outputs of a new node.
  std::vector<ValueId> nodes(std::string op, std::vector<ValueId> inputs, int outputs, Attributes attributes = {}) {
    Node& node = graph.add_node(std::move(op), std::move(inputs), outputs, std::move(attributes));
    infer_node(all_ops(), graph, node, known);
    return node.outputs;
  }
  ValueId node(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return nodes(std::move(op), std::move(inputs), 1, std::move(attributes))[0];
  }

  /// "f32[b, s, 64]"
  std::string type(ValueId id) const { return text(graph.value(id).type, graph.symbols); }
  /// "[b, s]", or "?"
  std::string contents(ValueId id) const {
    const auto& all = known.contents;
    auto at = static_cast<size_t>(id);
    return at < all.size() && all[at] ? text(*all[at], graph.symbols) : "?";
  }
};

/// The message of the Error that `action` throws; "" when it throws none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

inline Attributes attrs(std::initializer_list<std::pair<std::string, Attribute>> items) {
  Attributes out;
  for (const auto& [name, value] : items) out.set(name, value);
  return out;
}

using Ints = std::vector<int64_t>;

}  // namespace plait::test
