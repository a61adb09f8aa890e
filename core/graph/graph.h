#pragma once
// The Graph: nodes and values in static single assignment, with single-device semantics; it has no devices, ranks or
// buffers. Importers create it, passes (core/passes) rewrite it, `lower` compiles it into a Program.
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

/// The dims that the parts of a list have.
struct PartDims {
  enum class What : uint8_t { unknown, none, dims } what = What::unknown;  ///< none: it has no parts (yet)
  Dims dims = {};                                                          ///< -1: of several sizes
  bool known() const { return what != What::unknown; }
  bool operator==(const PartDims&) const = default;
};

/// Static facts about a value.
struct Type {
  DType dtype = DType::none;  ///< none: not inferred yet
  std::optional<Dims> dims;   ///< nullopt: the rank is unknown
  PartDims parts = {};        ///< of a list
};

/// What a value of the file is. Sequences and optionals are lists (core/base/packed_list.h), an optional of at most one.
enum class ValueKind : uint8_t { tensor, sequence, optional, optional_sequence };
/// How deep its lists are: 0, a tensor; 2, a list of lists.
constexpr int list_depth(ValueKind kind) { return kind == ValueKind::optional_sequence ? 2 : kind != ValueKind::tensor; }

struct Value {
  std::string name;  ///< as in the file, unique among named values; "" for values that passes made
  Type type;
  /// If set, the value is constant, no node produces it, and `type` is its type after the constant's steps.
  std::shared_ptr<const Constant> constant;
  ValueKind kind = ValueKind::tensor;
};

class Graph;

struct Node {
  std::string op;  ///< "Add"; of other domains with their name: "com.microsoft.GroupQueryAttention", "plait.Linear"
  std::vector<ValueId> inputs;   ///< no_value for an absent optional one
  std::vector<ValueId> outputs;  ///< no_value for an unused one
  Attributes attributes;
  /// Bodies of If, Loop and Scan by attribute name. Outer values that a body reads are inputs of the node, appended
  /// after the op's own, and inputs of the body: there are no implicit captures.
  std::vector<std::pair<std::string, std::shared_ptr<Graph>>> bodies;
  std::string name;   ///< as in the file, or of the original node: for messages and export
  int32_t opset = 0;  ///< of its domain in the file, for messages; 0 for a node that a pass made
  int32_t stage = 0;         ///< pipeline stage; -1: of every stage that reads it (pass stage)
  bool recomputed = false;   ///< computes a value of the forward pass again for the backward pass
};

class Graph {
 public:
  std::string name;
  SymbolTable symbols;
  std::vector<Node> nodes;       ///< in topological order
  std::vector<ValueId> inputs;   ///< values that the host binds for each run
  std::vector<ValueId> outputs;  ///< may be an input or a constant
  /// By node name: the path of its module in the source model ("model.layers.0.self_attn.q_proj"), if the file
  /// specifies it. Nodes that replace one have its name.
  std::map<std::string, std::string> modules;
  /// Of a branch of an If: why inference failed; "" if it did not. An error only when the branch is taken.
  std::string refusal;

  ValueId add_value(std::string name, Type type = {});
  ValueId add_constant(Constant constant, std::string name = {});
  /// Adds a computed constant, without an initializer.
  ValueId add_constant(Tensor tensor, std::string name = {}) {
    return add_constant(Constant{{}, std::move(tensor), {}}, std::move(name));
  }
  /// Appends a node with `outputs` new values of open type.
  Node& add_node(std::string op, std::vector<ValueId> inputs, int outputs = 1, Attributes attributes = {});

  int32_t value_count() const { return static_cast<int32_t>(values_.size()); }
  Value& value(ValueId id) { return values_[static_cast<size_t>(id)]; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  /// The constant's tensor; null if the value is absent, not constant, or has pending steps.
  const Tensor* constant(ValueId id) const;
  /// The value of that name, or no_value. Linear in the number of values.
  ValueId find(std::string_view name) const;

  /// Makes every node and output that reads `from` read `to`.
  void replace_uses(ValueId from, ValueId to);
  /// Removes nodes without needed outputs, and drops unused constants.
  void remove_dead();
  /// Sorts the nodes topologically, keeping the current order if it is valid. Throws Error(bad_model) that names a
  /// node of a cycle.
  void sort();

  Dim symbol(std::string_view symbol_name) { return Dim::symbol(symbols.intern(symbol_name)); }

 private:
  std::vector<Value> values_;
};

/// Copies the bodies, which several graphs may share: they are inferred in place, and ranks compile at once.
void own_bodies(Graph& graph);

/// Whether the sizes follow from those of the graph's inputs. Others are known only when a value is made.
bool follow_from_inputs(const Graph& graph, const Dims& dims);

/// By value: index of the node that makes it; -1 for inputs and constants.
std::vector<int32_t> producers(const Graph& graph);
/// By value: indices of the nodes that read it, ascending, without duplicates.
std::vector<std::vector<int32_t>> consumers(const Graph& graph);

/// Whether the node names a persistent array (plait.State) instead of computing.
inline bool is_state(const Node& node) { return node.op == "plait.State"; }

/// "node "/model/layers.0/mlp/Mul" (Mul)", for messages.
std::string describe(const Node& node);
/// The same; an unnamed node is identified by a value it makes: "the node Mul that makes "y"".
std::string describe(const Graph& graph, const Node& node);
/// "f32[b, s, 64]"; "?" for unknown parts.
std::string text(const Type& type, const SymbolTable& symbols);

/// The text form: one line per node and per value without a node; `parse_graph` reads it back to an equal graph
/// (constants of more than `inline_elements` elements print as "..." and do not read back).
std::string text(const Graph& graph, int64_t inline_elements = 16);
/// Throws Error(invalid_argument) with the line number.
Graph parse_graph(std::string_view text);

/// Checks the invariants of all passes: operands exist and come before their readers, each value has one producer and
/// constants and inputs none, names and inputs are unique; the same in bodies. Throws Error(internal) naming the
/// node; `after` is the last pass.
void verify(const Graph& graph, std::string_view after);

}  // namespace plait
