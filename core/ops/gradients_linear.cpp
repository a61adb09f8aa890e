// Gradients of products with weights, and of rows picked from a table.
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// How the op rounds its activations is how its gradients round theirs.
Attributes kept(const GradientContext& context, std::initializer_list<std::string_view> names) {
  Attributes out;
  for (std::string_view name : names)
    if (const Attribute* value = context.attributes().find(name)) out.set(std::string(name), *value);
  return out;
}

/// y = x w^T + bias: dx = dy w, dw = dy^T x, dbias the sum of all rows. Of a quantised weight there is dx alone.
void of_linear(GradientContext& context) {
  const ValueId dy = context.gradient(), w = context.input(1), bias = context.input(2);
  if (context.wants(0)) {
    std::vector<ValueId> inputs{dy, w};
    if (context.input(3) != no_value) inputs.insert(inputs.end(), {context.input(3), context.input(4)});
    context.give(0, context.add("plait.LinearBack", std::move(inputs), kept(context, {"round_x", "zero"})));
  }
  if (context.wants(1))
    context.give(1, context.add("plait.LinearWeight", {dy, context.input(0)}, kept(context, {"round_x"})));
  if (context.wants(2)) context.give(2, context.summed_to(dy, bias));
  if (context.wants(3) || context.wants(4))
    GradientContext::fail("scales and zero points of a quantised weight have none");
}

/// A row that no id names gets 0; one that several name gets all of theirs.
void of_embedding(GradientContext& context) {
  if (context.input(2) != no_value) GradientContext::fail("a quantised table has none", "train its adapters");
  context.give(
      0, context.add("plait.EmbeddingBack", {context.gradient(), context.input(1), context.sizes(context.input(0))}));
}

void of_gather_rows(GradientContext& context) {
  context.give(
      0, context.add("plait.RowsBack", {context.gradient(), context.input(1), context.sizes(context.input(0))}));
}

}  // namespace

void register_linear_gradients(OpSet& ops) {
  ops.differentiate("plait.Linear", of_linear);
  ops.differentiate("plait.Embedding", of_embedding);
  ops.differentiate("plait.GatherRows", of_gather_rows);
}

}  // namespace plait
