#pragma once
// Part of raise: follows rows of tokens selected by number, to prove that they return to their own tokens.
#include <map>
#include <optional>
#include <vector>

#include "core/passes/raise/raiser.h"

namespace plait {

/// Whether the symbol occurs in the size.
inline bool mentions(const Dim& dim, SymbolId symbol) {
  for (SymbolId one : dim.symbols())
    if (one == symbol) return true;
  return false;
}

/// Facts about the values between a NonZero over tokens and the Scatter that puts rows back. Nodes must be visited in
/// order.
class RoutedRows {
 public:
  RoutedRows(const Graph& graph, SymbolId tokens) : graph_(graph), tokens_(tokens), readers_(consumers(graph)) {}

  /// Whether the node reads routed values, or starts a route.
  bool concerns(const Node& node) const;
  /// Records the node's results if it works on tokens' numbers. False if it does not, or might mix tokens.
  bool follow(const Node& node);
  /// The count of rows, for a node that reads only rows of one route and no values of all tokens.
  std::optional<SymbolId> rows_of(const Node& node) const;
  /// Records that the results of such a node, which keeps rows independent, are rows too.
  void keep_rows(const Node& node, SymbolId count);
  /// Whether the value belongs to a route, and so depends on all tokens.
  bool routed(ValueId id) const { return tags_.count(id) > 0; }

 private:
  /// A number of a row: place * (its token's) + choice * (which of the token's choices) + constant.
  struct Form {
    int64_t place = 0, choice = 0, constant = 0;
    bool operator==(const Form&) const = default;
  };
  struct Tag {
    SymbolId count = -1;      ///< of the rows
    int component_axis = -1;  ///< the axis with one entry per form; -1: none
    bool rows = false;        ///< data of the row's token, with an axis of `count`; otherwise numbers
    std::vector<Form> forms;
  };

  const Dims* dims(ValueId id) const;
  const Tag* tag(ValueId id) const;
  bool has_tokens(ValueId id) const;
  bool begin(const Node& node);
  bool reshape_numbers(const Node& node, const Tag& from);
  bool pick_numbers(const Node& node, const Tag& from);
  bool combine_numbers(const Node& node);
  bool own(const Form& form, const Dim& size, SymbolId count) const;
  bool only_a_shape(ValueId sizes) const;
  bool gather(const Node& node);
  bool scatter(const Node& node) const;

  const Graph& graph_;
  SymbolId tokens_;
  std::vector<std::vector<int32_t>> readers_;
  std::map<ValueId, Tag> tags_;
  std::map<SymbolId, int64_t> choices_;  ///< choices per token, by route
};

}  // namespace plait
