#pragma once
// Converts GraphProto to Graph: names become ids, local functions are inlined, captures of bodies become operands.
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/schema.h"
#include "importers/onnx/device_reader.h"
#include "importers/onnx/functions.h"
#include "importers/onnx/tensor_reader.h"

namespace google::protobuf {
template <typename Element>
class RepeatedPtrField;
}
namespace onnx {
class GraphProto;
class NodeProto;
class ValueInfoProto;
}  // namespace onnx

namespace plait {
class LoadProgress;
}

namespace plait::onnx_import {

using NodeList = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
using Arguments = std::map<std::string, const onnx::AttributeProto*>;

/// The names of one list of nodes: of a graph, or of a called function, whose nodes go into the calling graph.
struct Scope {
  Graph& graph;
  const OpsetImports& opsets;
  /// Of a body: the scope that it may read; of the same graph if the body is inlined. Null for the main graph and functions.
  Scope* outer = nullptr;
  std::string prefix;  ///< of names of nodes from a call: "call/"
  /// In a function, and the bodies in it: the attributes of the call, including defaults. Null elsewhere.
  const Arguments* arguments = nullptr;
  std::unordered_map<std::string, ValueId> values = {};  ///< no_value: an omitted operand
  std::vector<std::string> captures = {};                ///< of a body: captured names, by first use
};

/// One per import. Violations are Error(bad_model) unless stated otherwise. A body may redefine an outer name (merged
/// decoders do); its own definition applies within it.
class GraphBuilder {
 public:
  /// `progress`, which may be null, advances by one per node of the main graph.
  GraphBuilder(const OpSet& ops, TensorReader& tensors, const FunctionTable& functions, DeviceReader& devices,
               LoadProgress* progress)
      : ops_(ops), tensors_(tensors), functions_(functions), devices_(devices), progress_(progress) {}

  /// Converts the whole `proto`, sorted. `opsets` are the model's.
  Graph main_graph(const onnx::GraphProto& proto, const OpsetImports& opsets);

 private:
  using NamedBody = std::pair<std::string, const onnx::GraphProto*>;

  // Names, inputs and outputs (graph_builder.cpp).
  void declare(Scope& scope, const std::string& name, ValueId id);
  std::optional<ValueId> lookup(Scope& scope, const std::string& name);
  ValueId need(Scope& scope, const std::string& name, std::string_view reader);
  ValueId add_capture(Scope& scope, const std::string& name, const std::string& value_name);
  std::string constant_name(const std::string& name);
  void read_initializers(Scope& scope, const onnx::GraphProto& proto);
  void read_inputs(Scope& scope, const onnx::GraphProto& proto, bool main);
  void read_graph(Scope& scope, const onnx::GraphProto& proto, bool main);

  // Nodes (node_builder.cpp).
  void declare_outputs(Scope& scope, const NodeList& nodes, const std::map<std::string, ValueId>& given);
  void build_nodes(Scope& scope, const NodeList& nodes);
  void build_node(Scope& scope, const onnx::NodeProto& proto, const std::string& domain, int64_t opset);
  int32_t read_devices(Scope& scope, const onnx::NodeProto& proto);
  std::vector<NamedBody> read_attributes(Scope& scope, const onnx::NodeProto& proto, Node& node);
  Tensor constant_of(const Scope& scope, const onnx::NodeProto& proto);

  // An op that is read with bodies in place (flex_attention.cpp).
  void read_flex_attention(Scope& scope, Node& node, const std::vector<NamedBody>& modifiers, int64_t opset);

  // Nested parts (body_builder.cpp).
  void read_bodies(Scope& scope, Node& node, const std::vector<NamedBody>& protos);
  void join_captures(Scope& scope, Node& node, std::vector<Scope>& bodies);
  ValueId inline_body(Scope& scope, const onnx::GraphProto& body, ValueId operand, const std::string& prefix);
  void call(Scope& scope, const onnx::NodeProto& proto, const Function& function);
  void return_outputs(Scope& scope, Scope& inner, const onnx::NodeProto& proto, const Function& function);

  /// Counts work beyond the file's size, since calls multiply it.
  void charge(int64_t units);

  const OpSet& ops_;
  TensorReader& tensors_;
  const FunctionTable& functions_;
  DeviceReader& devices_;
  LoadProgress* progress_;
  std::map<std::string, int> constants_;        ///< used names, and their number of repetitions
  std::map<std::string, std::string> modules_;  ///< Graph::modules
  std::vector<const Function*> calls_;          ///< being inlined, outermost first
  int depth_ = 0;                               ///< of bodies and calls
  int64_t cost_ = 0;
};

/// Whether names in the scope may occur in its graph again, so that its values are unnamed.
inline bool is_repeated(const Scope& scope) {
  return scope.arguments || (scope.outer && &scope.outer->graph == &scope.graph);
}

/// "node "n" (Op)", or "the node Op that makes "y"" for one without a name.
std::string describe(const Scope& scope, const onnx::NodeProto& proto);

/// The attribute within this scope: itself, or the call's argument that it refers to, or null.
const onnx::AttributeProto* resolve(const Scope& scope, const onnx::AttributeProto& attribute);

}  // namespace plait::onnx_import
