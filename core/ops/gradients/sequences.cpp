// Gradients of ops on sequences, which are lists (core/base/packed_list.h): the gradient of a list is the list of its parts'. A rule
// reads the gradient's list rather than the node's own, so that a loop that fills a list does not keep what it was before.
#include "core/base/error.h"
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {
namespace {

ValueId scalar(GradientContext& context, int64_t number) {
  return context.graph().add_constant(Tensor::of_ints(std::vector<int64_t>{number}).reshaped({}));
}

/// A list that an op made.
ValueId as_list(GradientContext& context, ValueId id) {
  context.graph().value(id).kind = ValueKind::sequence;
  return id;
}

ValueId length(GradientContext& context, ValueId list) { return context.add("SequenceLength", {list}); }

/// Position `at` of a list of `count` parts, counted from its begin.
ValueId from_begin(GradientContext& context, ValueId at, ValueId count) {
  const ValueId zero = scalar(context, 0);
  ValueId wide = at;
  if (context.type(at).dtype != DType::i64)
    wide = context.add("Cast", {at}, one_attribute("to", static_cast<int64_t>(DType::i64)));
  return context.add("Where", {context.add("Less", {wide, zero}), context.plus(wide, count), wide});
}

ValueId part(GradientContext& context, ValueId list, ValueId at) { return context.add("SequenceAt", {list, at}); }

void of_construct(GradientContext& context) {
  for (size_t k = 0; k < context.node().inputs.size(); ++k)
    if (context.wants(k))
      context.give_as_is(k, part(context, context.gradient(), scalar(context, static_cast<int64_t>(k))));
}

/// The list with a part put in where `at`, counted from the begin, will be.
ValueId with_part(GradientContext& context, ValueId list, ValueId tensor, ValueId at) {
  return as_list(context, context.add("SequenceInsert", {list, tensor, at}));
}

ValueId without_part(GradientContext& context, ValueId list, ValueId at) {
  return as_list(context, context.add("SequenceErase", {list, at}));
}

/// Of the list: that part, and zeros for the others.
void of_at(GradientContext& context) {
  const ValueId list = context.input(0), at = from_begin(context, context.input(1), length(context, list));
  context.give(0, with_part(context, context.zeros(without_part(context, list, at)), context.gradient(), at));
}

void of_insert(GradientContext& context) {
  const ValueId dy = context.gradient();
  const ValueId count = context.minus(length(context, dy), scalar(context, 1));  // before it was put in
  const ValueId given = context.input(2), at = given == no_value ? count : from_begin(context, given, count);
  if (context.wants(1)) context.give_as_is(1, part(context, dy, at));
  if (context.wants(0)) context.give(0, without_part(context, dy, at));
}

/// Of the part that was left out: zeros.
void of_erase(GradientContext& context) {
  const ValueId list = context.input(0), count = length(context, list);
  const ValueId given = context.input(1);
  const ValueId at = given == no_value ? context.minus(count, scalar(context, 1)) : from_begin(context, given, count);
  context.give(0, with_part(context, context.gradient(), context.zeros(part(context, list, at)), at));
}

void of_split_to_sequence(GradientContext& context) {
  const bool drops = context.input(1) == no_value && context.attributes().integer("keepdims", 1) == 0;
  Attributes attributes;
  attributes.set("axis", context.attributes().integer("axis", 0));
  attributes.set("new_axis", static_cast<int64_t>(drops));
  context.give_as_is(0, context.add("ConcatFromSequence", {context.gradient()}, std::move(attributes)));
}

void of_concat_from_sequence(GradientContext& context) {
  const int64_t axis = context.attributes().integer("axis", 0);
  Attributes attributes;
  attributes.set("axis", axis);
  if (context.attributes().integer("new_axis", 0) != 0) {
    attributes.set("keepdims", int64_t{0});
    return context.give(
        0, as_list(context, context.add("SplitToSequence", {context.gradient()}, std::move(attributes))));
  }
  const ValueId sizes =
      context.stack_of({context.input(0)}, [&](GraphBuilder& body, const std::vector<ValueId>& parts) {
        const ValueId shape = body.add("Shape", {parts[0]});
        return body.add("Gather", {shape, body.integers({axis})}, one_attribute("axis", int64_t{0}));
      });  // [parts, 1]
  const ValueId flat = context.add("Reshape", {sizes, context.integers({-1})});
  context.give(0,
               as_list(context, context.add("SplitToSequence", {context.gradient(), flat}, std::move(attributes))));
}

}  // namespace

void register_sequence_gradients(OpSet& ops) {
  ops.differentiate("SequenceConstruct", of_construct);
  ops.differentiate("SequenceAt", of_at);
  ops.differentiate("SequenceInsert", of_insert);
  ops.differentiate("SequenceErase", of_erase);
  ops.differentiate("SplitToSequence", of_split_to_sequence);
  ops.differentiate("ConcatFromSequence", of_concat_from_sequence);
  ops.differentiate("SequenceEmpty", no_gradient);
}

}  // namespace plait
