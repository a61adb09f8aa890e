// Ops of hybrid decoders (Qwen 3.5, LFM 2): those that are now ONNX's, and fused ones, which are expanded.
#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

void refuse_rollback(OldNode& old) {
  const bool asked = old.node.attributes.integer("state_window", 0) != 0;
  old.node.attributes.erase("state_window");
  if (asked)
    throw Error(Code::unsupported, "attribute state_window needs earlier states",
                "export the model without a state window");
}

}  // namespace

/// com.microsoft.CausalConvWithState over one dimension is ONNX's.
void spell_causal_conv(OldNode& old) {
  refuse_rollback(old);
  if (old.node.attributes.integer("ndim", 1) != 1)
    throw Error(Code::unsupported, "a causal convolution over more than one dimension");
  old.node.attributes.erase("ndim");
  old.node.op = "CausalConvWithState";
}

/// com.microsoft.LinearAttentionGate: a, dt_bias, decay_scale, b -> decay_scale * softplus(a + dt_bias), sigmoid(b);
/// the decay is computed in f32.
void spell_attention_gate(OldNode& old) {
  ValueId a = old.required(0), b = old.input(3);
  if (old.output(1) != no_value) {
    if (b == no_value) throw Error(Code::bad_model, "input 3 is missing");
    old.emit("Sigmoid", {b}, {}, old.output(1));
  }
  ValueId wide = old.emit("Cast", {a}, OldNode::with("to", static_cast<int64_t>(DType::f32)));
  ValueId decay = old.emit("Softplus", {old.emit("Add", {wide, old.required(1)})});
  old.become("CastLike", {old.emit("Mul", {decay, old.required(2)}), a});
}

/// com.microsoft.GatedRMSNorm: x [..., h], scale [d], gate [..., h] -> the norm of each d of x, times the gate's
/// activation.
void spell_gated_norm(OldNode& old) {
  const std::string activation = old.node.attributes.string("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid")
    throw Error(Code::bad_model, cat("attribute activation is ", quote(activation)), "silu or sigmoid is expected");
  const int64_t d = old.weight_dims(1).back();
  if (d < 1) throw Error(Code::bad_model, "the norm's weight is empty");
  ValueId x = old.required(0), gate = old.required(2);
  const auto& dims = old.graph.value(x).type.dims;
  if (dims && dims->empty()) throw Error(Code::bad_model, "input 0 is a scalar");
  // Zeros keep a size: rank 3 is what exporters write; where it is known otherwise, as many zeros.
  std::vector<int64_t> heads(dims ? dims->size() - 1 : 2, 0);
  heads.insert(heads.end(), {-1, d});
  Attributes norm = OldNode::with("axis", -1);
  norm.set("epsilon", old.node.attributes.real("epsilon", 1e-5));
  ValueId normed = old.emit("RMSNormalization", {old.emit("Reshape", {x, old.ints(heads)}), old.required(1)}, norm);
  ValueId flat = old.emit("Reshape", {normed, old.emit("Shape", {x})});
  ValueId factor = old.emit("Sigmoid", {gate});
  if (activation != "sigmoid") factor = old.emit("Mul", {gate, factor});
  old.become("Mul", {flat, factor});
}

/// com.microsoft.LinearAttention is ONNX's, with more ratios of heads.
void spell_linear_attention(OldNode& old) {
  refuse_rollback(old);
  old.node.op = "LinearAttention";
}

}  // namespace plait::onnx_import
