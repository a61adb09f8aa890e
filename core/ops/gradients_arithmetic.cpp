// Gradients of sums, products and choices.
#include "core/graph/gradient.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// y = a + b + ...
void of_sum(GradientContext& context) {
  for (size_t k = 0; k < context.node().inputs.size(); ++k)
    if (context.wants(k)) context.give(k, context.summed_to(context.gradient(), context.input(k)));
}

/// y = a - b
void of_difference(GradientContext& context) {
  if (context.wants(0)) context.give(0, context.summed_to(context.gradient(), context.input(0)));
  if (context.wants(1)) context.give(1, context.negative(context.summed_to(context.gradient(), context.input(1))));
}

/// y = a b
void of_product(GradientContext& context) {
  for (size_t k = 0; k < 2; ++k)
    if (context.wants(k))
      context.give(k, context.summed_to(context.times(context.gradient(), context.input(1 - k)), context.input(k)));
}

/// y = a / b: dy / b, and -dy y / b.
void of_quotient(GradientContext& context) {
  const ValueId over = context.over(context.gradient(), context.input(1));
  if (context.wants(0)) context.give(0, context.summed_to(over, context.input(0)));
  if (context.wants(1))
    context.give(1, context.negative(context.summed_to(context.times(over, context.output()), context.input(1))));
}

void of_negative(GradientContext& context) { context.give(0, context.negative(context.gradient())); }
void of_identity(GradientContext& context) { context.give(0, context.gradient()); }

/// y = x where the condition holds, else z.
void of_where(GradientContext& context) {
  const ValueId zero = context.number(0, context.gradient());
  if (context.wants(1))
    context.give(
        1, context.summed_to(context.add("Where", {context.input(0), context.gradient(), zero}), context.input(1)));
  if (context.wants(2))
    context.give(
        2, context.summed_to(context.add("Where", {context.input(0), zero, context.gradient()}), context.input(2)));
}

}  // namespace

void register_arithmetic_gradients(OpSet& ops) {
  ops.differentiate("Add", of_sum);
  ops.differentiate("Sum", of_sum);
  ops.differentiate("Sub", of_difference);
  ops.differentiate("Mul", of_product);
  ops.differentiate("Div", of_quotient);
  ops.differentiate("Neg", of_negative);
  ops.differentiate("Identity", of_identity);
  ops.differentiate("Where", of_where);
  for (const char* op : {"Floor", "Ceil", "Round", "Sign", "Equal", "Less", "LessOrEqual", "Greater",
                         "GreaterOrEqual", "IsNaN", "IsInf", "ArgMax", "ArgMin", "Shape", "Size", "NonZero"})
    ops.differentiate(op, no_gradient);
}

}  // namespace plait
