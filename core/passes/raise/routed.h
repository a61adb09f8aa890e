#pragma once
// Part of raise: follows rows of tokens that were picked by number, to show that they go back to their own tokens.
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

/// What is known of the values between a NonZero over tokens and the Scatter that puts rows back. Nodes have to be shown
/// in order.
class RoutedRows {
 public:
  RoutedRows(const Graph& graph, SymbolId tokens) : graph_(graph), tokens_(tokens), readers_(consumers(graph)) {}

  /// Whether the node reads routed values, or starts a route.
  bool concerns(const Node& node) const;
  /// Takes note of what the node makes, where it deals with tokens' numbers. False when it does not, or in a way that
  /// may mix tokens.
  bool follow(const Node& node);
  /// The count of rows, for a node that reads rows of one route alone and nothing that has all tokens.
  std::optional<SymbolId> rows_of(const Node& node) const;
  /// Such a node was shown to leave rows independent: what it makes are rows as well.
  void keep_rows(const Node& node, SymbolId count);
  /// Whether the value is one of a route, which all tokens' rows would have to be known for.
  bool routed(ValueId id) const { return tags_.count(id) > 0; }

 private:
  /// A number that a row has: place * (its token's) + choice * (which of the token's choices) + constant.
  struct Form {
    int64_t place = 0, choice = 0, constant = 0;
    bool operator==(const Form&) const = default;
  };
  struct Tag {
    SymbolId count = -1;      ///< of the rows
    int component_axis = -1;  ///< which has one entry a form; -1: no such axis
    bool rows = false;        ///< data that belongs to the row's token, of an axis of `count`; else numbers
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
  std::map<SymbolId, int64_t> choices_;  ///< how many a token has, by route
};

}  // namespace plait
