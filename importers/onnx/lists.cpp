#include "importers/onnx/lists.h"

#include <onnx-ml.pb.h>

#include <algorithm>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

constexpr std::string_view readers[] = {"SequenceAt",
                                        "SequenceLength",
                                        "ConcatFromSequence",
                                        "Optional",
                                        "OptionalHasElement",
                                        "OptionalGetElement",
                                        "Identity",
                                        "If",
                                        "Loop",
                                        "SequenceMap"};

bool reads_lists(std::string_view op) { return std::ranges::find(readers, op) != std::end(readers); }

ValueId scalar(Graph& graph, int64_t number) {
  return graph.add_constant(Tensor::of_ints(std::vector<int64_t>{number}).reshaped({}));
}
ValueId truth(Graph& graph, bool value) {
  const uint8_t byte = value;
  return graph.add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{}, {&byte, 1}));
}

class Settler {
 public:
  Settler(const OpSet& ops, Graph& graph) : ops_(ops), graph_(graph) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      try {
        settle(node);
      } catch (const Error& error) {
        throw error.at(cat(describe(graph_, node), ", domain \"ai.onnx\" opset ", node.opset));
      }
      graph_.nodes.push_back(std::move(node));
      for (Node& one : after_) graph_.nodes.push_back(std::move(one));
      after_.clear();
    }
  }

 private:
  ValueKind kind(const Node& node, size_t input) const {
    return input < node.inputs.size() && node.inputs[input] != no_value ? graph_.value(node.inputs[input]).kind
                                                                        : ValueKind::tensor;
  }

  void settle(Node& node) {
    const OpSchema* row = ops_.find(node.op);
    const bool makes_sequence = row && row->makes_sequence;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (kind(node, i) != ValueKind::tensor && !makes_sequence && !reads_lists(node.op))
        throw Error(Code::unsupported, cat("input ", i, " is a sequence or an optional, which this op does not read"),
                    "it reads tensors: SequenceAt and OptionalGetElement make them of a sequence or an optional");
    OldNode old{graph_, node, node.opset};
    if (node.op == "Optional") return make_optional(old);
    if (node.op == "OptionalHasElement") return has_element(old);
    if (node.op == "OptionalGetElement") return get_element(old);
    if (node.op == "SequenceMap") return map_parts(old);
    if (node.op == "Loop") wrap_states(node);
    if (makes_sequence) mark(node, 0, ValueKind::sequence);
    if (node.op == "Identity") mark(node, 0, kind(node, 0));
    for (const auto& [name, body] : node.bodies)
      for (size_t k = 0, first = node.op == "Loop" ? 1 : 0;
           k < node.outputs.size() && k + first < body->outputs.size(); ++k)
        mark(node, k, body->value(body->outputs[k + first]).kind);
  }

  /// A Loop may begin with an optional and hand on its value: the body's result becomes an optional again, and the Loop's is taken
  /// out of it.
  void wrap_states(Node& node) {
    Graph& body = *node.bodies.at(0).second;
    const auto carried =
        static_cast<size_t>(node.attributes.integer("carried", static_cast<int64_t>(node.inputs.size()) - 2));
    for (size_t k = 0; k < carried && k + 2 < body.inputs.size() && k + 1 < body.outputs.size(); ++k) {
      const ValueKind in = body.value(body.inputs[k + 2]).kind, out = body.value(body.outputs[k + 1]).kind;
      if (!(in == ValueKind::optional && out == ValueKind::tensor) &&
          !(in == ValueKind::optional_sequence && out == ValueKind::sequence))
        continue;
      body.outputs[k + 1] = body.add_node("SequenceConstruct", {body.outputs[k + 1]}, 1).outputs[0];
      body.value(body.outputs[k + 1]).kind = in;
      if (k >= node.outputs.size() || node.outputs[k] == no_value) continue;
      Node take = node;
      take.op = "SequenceAt";
      take.bodies.clear();
      take.attributes = {};
      take.outputs = {node.outputs[k]};
      node.outputs[k] = graph_.add_value("", {});
      graph_.value(take.outputs[0]).kind = out;
      take.inputs = {node.outputs[k], scalar(graph_, 0)};
      after_.push_back(std::move(take));
    }
  }

  void mark(const Node& node, size_t output, ValueKind kind) {
    if (output < node.outputs.size() && node.outputs[output] != no_value && kind != ValueKind::tensor)
      graph_.value(node.outputs[output]).kind = kind;
  }

  void make_optional(OldNode& old) {
    const bool of_sequence =
        kind(old.node, 0) == ValueKind::sequence || old.node.attributes.integer("of_sequence", 0) != 0;
    mark(old.node, 0, of_sequence ? ValueKind::optional_sequence : ValueKind::optional);
    if (old.input(0) != no_value) return old.become("SequenceConstruct", {old.input(0)});
    old.become("SequenceEmpty", {},
               OldNode::with("dtype", old.node.attributes.integer("type", static_cast<int64_t>(DType::f32))));
  }

  /// Whether a captured value is an optional is not known here.
  void check_known(const OldNode& old) const {
    const ValueId id = old.input(0);
    if (id != no_value && kind(old.node, 0) == ValueKind::tensor && graph_.value(id).type.dtype == DType::none &&
        std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end())
      throw Error(Code::unsupported, "does not take an optional of the graph around its body");
  }

  void has_element(OldNode& old) {
    check_known(old);
    const ValueKind given = kind(old.node, 0);
    if (given == ValueKind::optional || given == ValueKind::optional_sequence)
      return old.become("Greater", {old.emit("SequenceLength", {old.input(0)}), scalar(graph_, 0)});
    old.become("Identity", {truth(graph_, old.input(0) != no_value)});
  }

  void get_element(OldNode& old) {
    check_known(old);
    const ValueKind given = kind(old.node, 0);
    if (given == ValueKind::optional_sequence || given == ValueKind::sequence) mark(old.node, 0, ValueKind::sequence);
    if (given == ValueKind::tensor || given == ValueKind::sequence) return old.become("Identity", {old.required(0)});
    old.become("SequenceAt", {old.required(0), scalar(graph_, 0)});
  }

  /// The body over the parts of the first operand, and of others that are sequences: a Loop that takes part i of each and puts
  /// its results at the ends of the results' lists.
  void map_parts(OldNode& old) {
    Node& node = old.node;
    if (node.bodies.size() != 1) throw Error(Code::bad_model, "SequenceMap has one body");
    Graph& body = *node.bodies[0].second;
    const auto own =
        static_cast<size_t>(node.attributes.integer("own_inputs", static_cast<int64_t>(node.inputs.size())));
    const std::vector<int64_t> dtypes = node.attributes.integers("dtypes");
    if (body.inputs.size() != node.inputs.size() || body.outputs.size() < node.outputs.size() || node.inputs.empty())
      throw Error(Code::bad_model, "the body's inputs and outputs are not those of SequenceMap");
    const ValueId trip = body.add_value("", {DType::i64, Dims{}}),
                  condition = body.add_value("", {DType::boolean, Dims{}});
    std::vector<ValueId> inputs{trip, condition}, states, outputs;
    std::vector<ValueId> operands{old.emit("SequenceLength", {old.required(0)}), no_value};
    for (size_t k = 0; k < body.outputs.size(); ++k) {
      const int64_t dtype = k < dtypes.size() ? dtypes[k] : static_cast<int64_t>(DType::f32);
      operands.push_back(old.emit("SequenceEmpty", {}, OldNode::with("dtype", dtype)));
      states.push_back(
          body.add_value("", {static_cast<DType>(dtype), Dims{Dim::symbol(body.symbols.fresh("list"))}}));
      inputs.push_back(states.back());
    }
    std::vector<Node> inner = std::move(body.nodes);
    body.nodes.clear();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId input = body.inputs[i];
      if (i < own && (i == 0 || kind(node, i) == ValueKind::sequence)) {
        input = body.add_value(
            "", {body.value(body.inputs[i]).type.dtype, Dims{Dim::symbol(body.symbols.fresh("list"))}});
        body.add_node("SequenceAt", {input, trip}, 0).outputs = {body.inputs[i]};
      }
      inputs.push_back(input);
    }
    std::move(inner.begin(), inner.end(), std::back_inserter(body.nodes));
    outputs.push_back(body.add_node("Identity", {condition}, 1).outputs[0]);
    for (size_t k = 0; k < body.outputs.size(); ++k)
      outputs.push_back(body.add_node("SequenceInsert", {states[k], body.outputs[k]}, 1).outputs[0]);
    for (Node& one : body.nodes) one.opset = node.opset;
    operands.insert(operands.end(), node.inputs.begin(), node.inputs.end());
    node.outputs.resize(body.outputs.size(), no_value);
    for (size_t k = 0; k < node.outputs.size(); ++k) mark(node, k, ValueKind::sequence);
    body.inputs = std::move(inputs);
    body.outputs = std::move(outputs);
    node.op = "Loop";
    node.inputs = std::move(operands);
    node.attributes = OldNode::with("carried", static_cast<int64_t>(states.size()));
  }

  const OpSet& ops_;
  Graph& graph_;
  std::vector<Node> after_;  ///< nodes that follow the one at hand
};

}  // namespace

ValueKind kind_of(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) {
    if (!type.sequence_type().elem_type().has_tensor_type())
      throw Error(Code::unsupported, "is a sequence of other things than tensors");
    return ValueKind::sequence;
  }
  if (!type.has_optional_type()) return ValueKind::tensor;
  const onnx::TypeProto& element = type.optional_type().elem_type();
  if (element.has_optional_type()) throw Error(Code::unsupported, "is an optional of an optional");
  return kind_of(element) == ValueKind::tensor ? ValueKind::optional : ValueKind::optional_sequence;
}

const onnx::TypeProto& tensor_type_of(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return tensor_type_of(type.sequence_type().elem_type());
  return type.has_optional_type() ? tensor_type_of(type.optional_type().elem_type()) : type;
}

void settle_lists(const OpSet& ops, Graph& graph) { Settler(ops, graph).run(); }

}  // namespace plait::onnx_import
