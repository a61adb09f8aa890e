// Gradients of sums, products and choices.
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

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

/// y = x where the condition holds, otherwise z.
void of_where(GradientContext& context) {
  const ValueId zero = context.number(0, context.gradient());
  if (context.wants(1))
    context.give(
        1, context.summed_to(context.add("Where", {context.input(0), context.gradient(), zero}), context.input(1)));
  if (context.wants(2))
    context.give(
        2, context.summed_to(context.add("Where", {context.input(0), zero, context.gradient()}), context.input(2)));
}

/// y = the mean of n.
void of_mean(GradientContext& context) {
  const ValueId dy = context.gradient();
  const ValueId share = context.over(dy, context.number(static_cast<double>(context.node().inputs.size()), dy));
  for (size_t k = 0; k < context.node().inputs.size(); ++k)
    if (context.wants(k)) context.give(k, context.summed_to(share, context.input(k)));
}

/// y = maximum or minimum: the first extreme operand gets the gradient.
void of_choice(GradientContext& context) {
  ValueId rest = context.gradient();
  const ValueId zero = context.number(0, rest);
  for (size_t k = 0; k < context.node().inputs.size(); ++k) {
    const ValueId chosen = context.add("Equal", {context.input(k), context.output()});
    if (context.wants(k))
      context.give(k, context.summed_to(context.add("Where", {chosen, rest, zero}), context.input(k)));
    rest = context.add("Where", {chosen, zero, rest});
  }
}

/// y = a^b: dy b a^(b - 1), and dy y log a, which is 0 where a is not positive.
void of_power(GradientContext& context) {
  const ValueId a = context.input(0), b = context.input(1), dy = context.gradient();
  const ValueId exponent = context.cast(b, a);
  if (context.wants(0)) {
    const ValueId slope =
        context.times(exponent, context.add("Pow", {a, context.minus(exponent, context.number(1, a))}));
    context.give(0, context.summed_to(context.times(dy, slope), a));
  }
  if (context.wants(1)) {
    const ValueId positive = context.add("Greater", {a, context.number(0, a)});
    const ValueId base = context.add("Where", {positive, a, context.number(1, a)});
    const ValueId slope = context.times(context.output(), context.add("Log", {base}));
    context.give(1, context.cast(context.summed_to(context.times(dy, slope), b), b));
  }
}

/// y = a where a is not negative, otherwise a b.
void of_leak(GradientContext& context) {
  const ValueId a = context.input(0), b = context.input(1), dy = context.gradient(), zero = context.number(0, dy);
  const ValueId negative = context.add("Less", {a, zero}), leaked = context.add("Where", {negative, dy, zero});
  if (context.wants(0)) context.give(0, context.add("Where", {negative, context.times(dy, b), dy}));
  if (context.wants(1)) context.give(1, context.summed_to(context.times(leaked, a), b));
}

/// y = a - b q with a whole number q.
void of_remainder(GradientContext& context) {
  const ValueId a = context.input(0), b = context.input(1), dy = context.gradient();
  if (context.wants(0)) context.give(0, context.summed_to(dy, a));
  if (!context.wants(1)) return;
  const ValueId times = context.over(context.minus(context.output(), a), b);  // -q
  context.give(1, context.summed_to(context.times(dy, context.add("Round", {times})), b));
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
  ops.differentiate("Mean", of_mean);
  ops.differentiate("Max", of_choice);
  ops.differentiate("Min", of_choice);
  ops.differentiate("Pow", of_power);
  ops.differentiate("PRelu", of_leak);
  ops.differentiate("Mod", of_remainder);
  for (const char* op : {"Floor",
                         "Ceil",
                         "Round",
                         "Sign",
                         "Equal",
                         "Less",
                         "LessOrEqual",
                         "Greater",
                         "GreaterOrEqual",
                         "IsNaN",
                         "IsInf",
                         "ArgMax",
                         "ArgMin",
                         "Shape",
                         "Size",
                         "NonZero",
                         "Hardmax",
                         "EyeLike",
                         "Bernoulli",
                         "Multinomial",
                         "RandomNormalLike",
                         "RandomUniformLike"})
    ops.differentiate(op, no_gradient);
}

}  // namespace plait
