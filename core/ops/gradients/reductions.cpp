// Gradients of reductions, of Softmax and of its logarithm.
#include <algorithm>
#include <numeric>

#include "core/graph/gradient.h"
#include "core/ops/base/rows.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// The dims of the result with the reduced ones kept as 1.
Dims kept_dims(GradientContext& context) {
  const Dims in = context.dims(context.input(0));
  if (context.attributes().integer("keepdims", 1) != 0) return context.dims(context.output());
  Dims out = in;
  const std::optional<std::vector<int64_t>> axes = context.constants(context.input(1));
  if (context.input(1) != no_value && !axes) GradientContext::fail("its axes are known only when it runs");
  if (!axes || axes->empty()) {
    if (context.attributes().integer("noop_with_empty_axes", 0) == 0) std::fill(out.begin(), out.end(), Dim(1));
  } else {
    for (int64_t axis : *axes) out[checked_axis(axis, in.size())] = Dim(1);
  }
  return out;
}

/// A value with the result's dims, broadcastable to the operand.
ValueId kept(GradientContext& context, ValueId value) { return context.reshaped(value, kept_dims(context)); }
ValueId spread(GradientContext& context, ValueId value) {
  return context.expanded(kept(context, value), context.input(0));
}

/// Number of operand elements per result element.
Dim elements_each(GradientContext& context) {
  const Dims in = context.dims(context.input(0)), out = kept_dims(context);
  Dim count(1);
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i] != out[i]) count = count * in[i];
  return count;
}

void of_reduced_sum(GradientContext& context) { context.give(0, spread(context, context.gradient())); }

void of_reduced_mean(GradientContext& context) {
  const ValueId dy = context.gradient();
  context.give(0, spread(context, context.over(dy, context.count(elements_each(context), dy))));
}

/// Ties share the gradient equally.
void of_extreme(GradientContext& context) {
  const ValueId x = context.input(0), zero = context.number(0, x), one = context.number(1, x);
  const ValueId chosen = context.add("Equal", {x, kept(context, context.output())});
  const Dims from = context.dims(x), to = kept_dims(context);
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != to[i]) axes.push_back(static_cast<int64_t>(i));
  const ValueId count = context.sum(context.add("Where", {chosen, one, zero}), std::move(axes));
  const ValueId share = context.over(kept(context, context.gradient()), count);
  context.give(0, context.add("Where", {chosen, share, zero}));
}

void of_squares(GradientContext& context) {
  const ValueId dy = context.gradient();
  context.give(0, context.times(context.input(0), kept(context, context.plus(dy, dy))));
}

void of_absolutes(GradientContext& context) {
  context.give(0, context.times(context.add("Sign", {context.input(0)}), kept(context, context.gradient())));
}

/// y = |x|: x dy / y.
void of_norm(GradientContext& context) {
  const ValueId over = context.over(context.gradient(), context.output());
  context.give(0, context.times(context.input(0), kept(context, over)));
}

/// y = log of the sum: dy / e^y.
void of_log_sum(GradientContext& context) {
  const ValueId sum = context.add("Exp", {context.output()});
  context.give(0, spread(context, context.over(context.gradient(), sum)));
}

/// y = log of the sum of e^x: dy e^(x - y).
void of_log_sum_exp(GradientContext& context) {
  const ValueId less = context.minus(context.input(0), kept(context, context.output()));
  context.give(0, context.times(context.add("Exp", {less}), kept(context, context.gradient())));
}

/// y is the product of all: dy y / x.
void of_total_product(GradientContext& context) {
  const ValueId total = kept(context, context.times(context.gradient(), context.output()));
  context.give(0, context.over(total, context.input(0)));
}

// ---- Softmax ----

void of_softmax(GradientContext& context) {
  context.give(0, context.add("plait.SoftmaxBack", {context.output(), context.gradient()}, context.kept({"axis"})));
}

/// y = log softmax x: dy - e^y sum dy.
void of_log_softmax(GradientContext& context) {
  const ValueId dy = context.gradient();
  const size_t rank = context.dims(dy).size();
  if (rank == 0) return context.give(0, context.zeros(dy));
  const auto axis = static_cast<int64_t>(checked_axis(context.attributes().integer("axis", -1), rank));
  const ValueId total = context.sum(dy, {axis});
  context.give(0, context.minus(dy, context.times(context.add("Exp", {context.output()}), total)));
}

/// y = x / |x|, by the sum of absolutes or the root of the sum of squares: (dy - s sum(dy y)) / |x|, where s is the
/// derivative of the norm: y, or signs.
void of_normalisation(GradientContext& context) {
  const ValueId x = context.input(0), y = context.output(), dy = context.gradient();
  const bool absolutes = context.attributes().integer("p", 2) == 1;
  const auto axis =
      static_cast<int64_t>(checked_axis(context.attributes().integer("axis", -1), context.dims(dy).size()));
  const ValueId norm = context.add(absolutes ? "ReduceL1" : "ReduceL2", {x, context.integers({axis})});
  const ValueId along = context.sum(context.times(dy, y), {axis});
  const ValueId across = context.minus(dy, context.times(absolutes ? context.add("Sign", {x}) : y, along));
  context.give(0, context.over(across, norm));
}

}  // namespace

void register_reduction_gradients(OpSet& ops) {
  ops.differentiate("ReduceSum", of_reduced_sum);
  ops.differentiate("ReduceMean", of_reduced_mean);
  ops.differentiate("ReduceMax", of_extreme);
  ops.differentiate("ReduceMin", of_extreme);
  ops.differentiate("GlobalMaxPool", of_extreme);
  ops.differentiate("ReduceSumSquare", of_squares);
  ops.differentiate("ReduceL1", of_absolutes);
  ops.differentiate("ReduceL2", of_norm);
  ops.differentiate("ReduceLogSum", of_log_sum);
  ops.differentiate("ReduceLogSumExp", of_log_sum_exp);
  ops.differentiate("ReduceProd", of_total_product);
  ops.differentiate("Softmax", of_softmax);
  ops.differentiate("LogSoftmax", of_log_softmax);
  ops.differentiate("LpNormalization", of_normalisation);
}

}  // namespace plait
