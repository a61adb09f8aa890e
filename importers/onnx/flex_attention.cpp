// FlexAttention of ai.onnx.preview: Attention, or its steps with the modifiers of scores and probabilities between them.
#include <onnx-ml.pb.h>

#include "importers/onnx/graph_builder.h"
#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

/// The nodes of one FlexAttention with modifiers, of q [b, h, l, d], k [b, g, s, d] and v [b, g, s, e].
class Steps {
 public:
  Steps(OldNode& old, int64_t precision) : old_(old), precision_(precision) {}

  /// [b, h, l, s]: query head i reads key head i / (h / g).
  ValueId scores() {
    const ValueId q = old_.required(0), k = old_.required(1);
    const ValueId keys = old_.emit("Unsqueeze", {cast(k), old_.ints({2})});
    Attributes last_two;
    last_two.set("perm", std::vector<int64_t>{0, 1, 2, 4, 3});
    const ValueId turned = old_.emit("Transpose", {keys}, std::move(last_two));
    const ValueId grouped = reshape(cast(q), {size(q, 0), size(k, 1), repeats(), size(q, 2), size(q, 3)});
    const ValueId out = old_.emit("MatMul", {grouped, turned});
    return old_.emit("Mul", {reshape(out, {size(q, 0), size(q, 1), size(q, 2), size(k, 2)}), scale()});
  }
  ValueId softmax(ValueId scores) { return old_.emit("Softmax", {scores}, OldNode::with("axis", -1)); }
  /// Makes the node the last one, of q's type.
  void finish(ValueId probabilities) {
    const ValueId q = old_.required(0), k = old_.required(1), v = old_.required(2);
    const ValueId grouped = reshape(probabilities, {size(q, 0), size(k, 1), repeats(), size(q, 2), size(k, 2)});
    const ValueId out = old_.emit("MatMul", {grouped, old_.emit("Unsqueeze", {cast(v), old_.ints({2})})});
    old_.become("CastLike", {reshape(out, {size(q, 0), size(q, 1), size(q, 2), size(v, 3)}), q});
  }

 private:
  ValueId cast(ValueId id) { return old_.emit("Cast", {id}, OldNode::with("to", precision_)); }
  ValueId size(ValueId id, int64_t axis) {
    Attributes range = OldNode::with("start", axis);
    range.set("end", axis + 1);
    return old_.emit("Shape", {id}, std::move(range));
  }
  ValueId repeats() { return old_.emit("Div", {size(old_.required(0), 1), size(old_.required(1), 1)}); }
  ValueId reshape(ValueId id, std::vector<ValueId> sizes) {
    const ValueId shape = old_.emit("Concat", std::move(sizes), OldNode::with("axis", 0));
    return old_.emit("Reshape", {id, shape}, OldNode::with("allowzero", 1));
  }
  ValueId scale() {
    if (!old_.node.attributes.has("scale"))
      return old_.emit("Reciprocal", {old_.emit("Sqrt", {cast(size(old_.required(0), 3))})});
    const auto number = static_cast<float>(old_.node.attributes.real("scale", 1));
    return cast(old_.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&number, 1})));
  }

  OldNode& old_;
  int64_t precision_;
};

/// The type of scores: the node's, otherwise the modifier's own, otherwise f32, or f64 for such operands.
int64_t precision_of(const OldNode& old, const onnx::GraphProto& modifier) {
  if (old.node.attributes.has("softmax_precision")) return old.node.attributes.integer("softmax_precision");
  if (modifier.input_size() && modifier.input(0).type().tensor_type().elem_type())
    return modifier.input(0).type().tensor_type().elem_type();
  const bool wide = old.graph.value(old.required(0)).type.dtype == DType::f64;
  return static_cast<int64_t>(wide ? DType::f64 : DType::f32);
}

}  // namespace

void GraphBuilder::read_flex_attention(Scope& scope, Node& node, const std::vector<NamedBody>& modifiers,
                                       int64_t opset) {
  if (node.inputs.size() != 3 || node.outputs.size() != 1)
    throw Error(Code::bad_model, cat("FlexAttention has 3 inputs and one output, got ", node.inputs.size(), " and ",
                                     node.outputs.size()));
  for (const auto& [name, value] : node.attributes)
    if (name != "scale" && name != "softmax_precision")
      throw Error(Code::bad_model, cat("FlexAttention has no attribute ", quote(name)));
  const onnx::GraphProto *of_scores = nullptr, *of_probabilities = nullptr;
  for (const auto& [name, body] : modifiers) {
    if (name != "score_mod" && name != "prob_mod")
      throw Error(Code::bad_model, cat("FlexAttention has no attribute ", quote(name), " that is a graph"));
    (name == "score_mod" ? of_scores : of_probabilities) = body;
  }
  if (modifiers.empty()) {
    node.op = "Attention";
    return;
  }
  OldNode old{scope.graph, node, opset};
  Steps steps(old, precision_of(old, of_scores ? *of_scores : *of_probabilities));
  const auto modified = [&](const onnx::GraphProto* body, const char* name, ValueId value) {
    try {
      return body ? inline_body(scope, *body, value, cat(node.name, node.name.empty() ? "" : "/")) : value;
    } catch (const Error& error) {
      throw error.at(cat("body ", quote(name)));
    }
  };
  const ValueId scores = modified(of_scores, "score_mod", steps.scores());
  steps.finish(modified(of_probabilities, "prob_mod", steps.softmax(scores)));
}

}  // namespace plait::onnx_import
