// Gradients of elementwise ops of one operand: products of existing values where possible; others are
// plait.UnaryBack, which computes the derivative and multiplies in one pass.
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

void of_exp(GradientContext& context) { context.give(0, context.times(context.gradient(), context.output())); }
void of_log(GradientContext& context) { context.give(0, context.over(context.gradient(), context.input(0))); }

void of_sqrt(GradientContext& context) {
  const ValueId y = context.output();
  context.give(0, context.over(context.gradient(), context.plus(y, y)));
}

/// y = 1 / x: -dy y y.
void of_reciprocal(GradientContext& context) {
  const ValueId y = context.output();
  context.give(0, context.negative(context.times(context.times(context.gradient(), y), y)));
}

/// 0 at 0.
void of_absolute(GradientContext& context) {
  context.give(0, context.times(context.gradient(), context.add("Sign", {context.input(0)})));
}

void of_sine(GradientContext& context) {
  context.give(0, context.times(context.gradient(), context.add("Cos", {context.input(0)})));
}
void of_cosine(GradientContext& context) {
  context.give(0, context.negative(context.times(context.gradient(), context.add("Sin", {context.input(0)}))));
}

/// The derivative of the node's own function; its parameters are the node's.
void of_function(GradientContext& context) {
  Attributes attributes = context.attributes();
  attributes.set("function", context.node().op);
  context.give(0, context.add("plait.UnaryBack", {context.input(0), context.gradient()}, std::move(attributes)));
}

/// y = min(max(x, low), high): of the one of the three that it equals.
void of_clip(GradientContext& context) {
  const ValueId x = context.input(0), low = context.input(1), high = context.input(2), dy = context.gradient();
  const ValueId zero = context.number(0, dy);
  ValueId inner = x, rest = dy;  // the result of max, and the remaining gradient
  if (low != no_value) inner = context.add("Max", {x, low});
  if (high != no_value) {
    const ValueId above = context.add("Greater", {inner, high});
    context.give(2, context.wants(2) ? context.summed_to(context.add("Where", {above, dy, zero}), high) : no_value);
    rest = context.add("Where", {above, zero, dy});
  }
  if (low != no_value) {
    const ValueId below = context.add("Less", {x, low});
    context.give(1, context.wants(1) ? context.summed_to(context.add("Where", {below, rest, zero}), low) : no_value);
    rest = context.add("Where", {below, zero, rest});
  }
  context.give(0, rest);
}

}  // namespace

void register_unary_gradients(OpSet& ops) {
  ops.differentiate("Exp", of_exp);
  ops.differentiate("Log", of_log);
  ops.differentiate("Sqrt", of_sqrt);
  ops.differentiate("Reciprocal", of_reciprocal);
  ops.differentiate("Abs", of_absolute);
  ops.differentiate("Sin", of_sine);
  ops.differentiate("Cos", of_cosine);
  ops.differentiate("Clip", of_clip);
  for (const char* op :
       {"Tan",         "Asin",  "Acos",      "Atan",      "Sinh",    "Cosh", "Tanh",  "Asinh",
        "Acosh",       "Atanh", "Erf",       "Relu",      "Sigmoid", "Gelu", "Swish", "Softplus",
        "Softsign",    "Mish",  "HardSwish", "LeakyRelu", "Elu",     "Celu", "Selu",  "ThresholdedRelu",
        "HardSigmoid", "Shrink"})
    ops.differentiate(op, of_function);
}

}  // namespace plait
