#pragma once
// The Graph: nodes and values in static single assignment. It has single-device meaning; no device, rank or buffer
// is in it. Importers make it, passes (core/passes) rewrite it, `lower` turns it into a Program.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/constant.h"
#include "core/base/dim.h"
#include "core/base/tensor.h"

namespace plait {

using ValueId = int32_t;
constexpr ValueId no_value = -1;  ///< an absent optional operand

/// What is known about a value before it exists.
struct Type {
  DType dtype = DType::none;  ///< none: not inferred yet
  std::optional<Dims> dims;   ///< nullopt: not even the rank is known
};

struct Value {
  std::string name;  ///< as in the file, unique among named values; "" for those that passes made
  Type type;
  /// Set: the value is this, no node produces it, and `type` says what it is after the constant's steps.
  std::shared_ptr<const Constant> constant;
};

class Graph;

struct Node {
  std::string op;  ///< "Add"; other domains with their name: "com.microsoft.GroupQueryAttention", "plait.Linear"
  std::vector<ValueId> inputs;   ///< no_value for an absent optional one
  std::vector<ValueId> outputs;  ///< no_value for one that nobody asked for
  Attributes attributes;
  /// Bodies of If, Loop and Scan by attribute name. What a body reads from outside is an input of the node, appended
  /// after the op's own, and an input of the body: nothing is captured silently.
  std::vector<std::pair<std::string, std::shared_ptr<Graph>>> bodies;
  std::string name;   ///< as in the file, or of the node it came from: for messages and the way back
  int32_t opset = 0;  ///< of its domain in the file, for messages; 0 for a node that a pass made
  int32_t stage = 0;         ///< pipeline stage; -1: of every stage that reads it (pass stage)
  bool recomputed = false;   ///< computes a value of the forward pass again for the backward pass
};

class Graph {
 public:
  std::string name;
  SymbolTable symbols;
  std::vector<Node> nodes;       ///< in an order in which they can run
  std::vector<ValueId> inputs;   ///< values that the host binds at each run
  std::vector<ValueId> outputs;  ///< may name an input or a constant
  /// Of nodes, by their names: the path of the module that they were in, within the model that the file was made of
  /// ("model.layers.0.self_attn.q_proj"), where the file says it. Nodes that took the place of one have its name.
  std::map<std::string, std::string> modules;
  /// Of a branch of an If: why it cannot run, as inference found; "" where it can. An error only when it is taken.
  std::string refusal;

  ValueId add_value(std::string name, Type type = {});
  ValueId add_constant(Constant constant, std::string name = {});
  /// A computed constant: no initializer stands behind it.
  ValueId add_constant(Tensor tensor, std::string name = {}) {
    return add_constant(Constant{{}, std::move(tensor), {}}, std::move(name));
  }
  /// Appends a node with `outputs` fresh values; their types are left open.
  Node& add_node(std::string op, std::vector<ValueId> inputs, int outputs = 1, Attributes attributes = {});

  int32_t value_count() const { return static_cast<int32_t>(values_.size()); }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  /// The constant's tensor, or null when the value is absent, not constant, or has steps still to be made.
  const Tensor* constant(ValueId id) const;
  /// The value of that name, or no_value. Linear in the number of values.
  ValueId find(std::string_view name) const;

  /// Lets every node and output that reads `from` read `to`.
  void replace_uses(ValueId from, ValueId to);
  /// Removes nodes none of whose outputs is needed, and forgets constants that nothing reads.
  void remove_dead();
  /// Puts the nodes into an order in which they can run, keeping the present order where it is one. Throws
  /// Error(bad_model) that names a node of the cycle.
  void sort();

  Dim symbol(std::string_view symbol_name) { return Dim::symbol(symbols.intern(symbol_name)); }

 private:
  std::vector<Value> values_;
};

/// For each value the index of the node that makes it, -1 for inputs and constants.
std::vector<int32_t> producers(const Graph& graph);
/// For each value the indices of the nodes that read it, ascending, each once.
std::vector<std::vector<int32_t>> consumers(const Graph& graph);

/// "node "/model/layers.0/mlp/Mul" (Mul)": where messages point to.
std::string describe(const Node& node);
/// The same; a node without a name is told by the value it makes: "the node Mul that makes "y"".
std::string describe(const Graph& graph, const Node& node);
/// "f32[b, s, 64]"; "?" for what is unknown.
std::string text(const Type& type, const SymbolTable& symbols);

/// The text form: one line a value that is no node's, one line a node; `parse_graph` reads it back to an equal graph
/// (constants of more than `inline_elements` elements print as "..." and do not read back).
std::string text(const Graph& graph, int64_t inline_elements = 16);
/// Throws Error(invalid_argument) with the line number.
Graph parse_graph(std::string_view text);

/// Checks what every pass must leave true: operands exist and come before their readers, each value has one producer
/// and no constant or input has any, names and inputs are unique, bodies likewise. Throws Error(internal) naming the
/// node; `after` is the pass that ran last.
void verify(const Graph& graph, std::string_view after);

}  // namespace plait
