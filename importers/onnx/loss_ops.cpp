// Expands ONNX's losses into the ops of their definitions, with their kernels, gradients and shardings.
#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

/// The loss of log-probabilities [n, c, ...] by labels [n, ...], as the node's attributes reduce it.
void spell_loss(OldNode& old, ValueId log_probabilities) {
  const std::string reduction = old.node.attributes.string("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    throw Error(Code::bad_model, cat("the reduction ", quote(reduction), " is not none, sum or mean"));
  ValueId labels = old.required(1), weights = old.input(2);
  const ValueId zero = old.ints({0});
  ValueId counts = no_value;  // 0 where a label is ignored
  if (old.node.attributes.has("ignore_index")) {
    const ValueId mark = old.emit("CastLike", {old.ints({old.node.attributes.integer("ignore_index", 0)}), labels});
    const ValueId ignored = old.emit("Equal", {labels, mark});
    labels = old.emit("Where", {ignored, old.emit("CastLike", {zero, labels}), labels});
    counts = old.emit("CastLike", {old.emit("Not", {ignored}), log_probabilities});
  }
  if (weights != no_value) {
    weights = old.emit("Gather", {weights, labels});
    if (counts != no_value) weights = old.emit("Mul", {weights, counts});
  } else {
    weights = counts;
  }
  const ValueId axis = old.ints({1});
  const ValueId picked = old.emit("GatherElements", {log_probabilities, old.emit("Unsqueeze", {labels, axis})},
                                  OldNode::with("axis", 1));
  ValueId losses = old.emit("Neg", {old.emit("Squeeze", {picked, axis})});
  if (weights != no_value) losses = old.emit("Mul", {losses, weights});
  if (reduction == "none") return old.become("Identity", {losses});
  const Attributes all = OldNode::with("keepdims", 0);
  if (reduction == "sum") return old.become("ReduceSum", {losses}, all);
  if (weights == no_value) return old.become("ReduceMean", {losses}, all);
  old.become("Div", {old.emit("ReduceSum", {losses}, all), old.emit("ReduceSum", {weights}, all)});
}

}  // namespace

void spell_likelihood_loss(OldNode& old) { spell_loss(old, old.required(0)); }

void spell_cross_entropy_loss(OldNode& old) {
  spell_loss(old, old.emit("LogSoftmax", {old.required(0)}, OldNode::with("axis", 1), old.output(1)));
}

}  // namespace plait::onnx_import
