// Gradients of indexed reads and writes: reads accumulate, overwritten data gets none.
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

Attributes adding(Attributes attributes) {
  attributes.set("reduction", std::string("add"));
  return attributes;
}

void of_gather(GradientContext& context) {
  context.give(
      0, context.add("plait.GatherBack", {context.gradient(), context.input(1), context.sizes(context.input(0))},
                     context.kept({"axis"})));
}

void of_gather_elements(GradientContext& context) {
  context.give(0,
               context.add("ScatterElements", {context.zeros(context.input(0)), context.input(1), context.gradient()},
                           adding(context.kept({"axis"}))));
}

void of_gather_nd(GradientContext& context) {
  if (context.attributes().integer("batch_dims", 0) != 0) GradientContext::fail("tuples by batch have none");
  context.give(0, context.add("ScatterND", {context.zeros(context.input(0)), context.input(1), context.gradient()},
                              adding({})));
}

/// The values of TopK; the choice has no gradient.
void of_top_k(GradientContext& context) {
  Attributes attributes;
  attributes.set("axis", context.attributes().integer("axis", -1));
  context.give(
      0, context.add("ScatterElements", {context.zeros(context.input(0)), context.output(1), context.gradient()},
                     adding(std::move(attributes))));
}

/// y = data with updates written, or added, at indices. Overwritten data gets no gradient. Of several updates to one
/// place the last counts: the standard leaves open which.
template <const char* scatter, const char* gather>
void of_scatter(GradientContext& context) {
  const std::string reduction = context.attributes().string("reduction", "none");
  if (reduction != "none" && reduction != "add") GradientContext::fail("only replacing and adding have one");
  const ValueId indices = context.input(1), dy = context.gradient();
  const Attributes axis = context.kept({"axis"});
  if (context.wants(0)) {
    const ValueId kept = reduction == "add" || !context.wants(0)
                             ? dy
                             : context.add(scatter, {dy, indices, context.zeros(context.input(2))}, axis);
    context.give(0, kept);
  }
  if (context.wants(2)) context.give(2, context.add(gather, {dy, indices}, axis));
}

/// y = values[0] off the index, values[1] on it.
void of_one_hot(GradientContext& context) {
  const ValueId dy = context.gradient(), values = context.input(2);
  if (!context.wants(2)) return;
  const Attributes first = one_attribute("axis", int64_t{0});
  const ValueId ends = context.add("Concat",
                                   {context.reshaped(context.number(0, values), Dims{Dim(1)}),
                                    context.reshaped(context.number(1, values), Dims{Dim(1)})},
                                   first);
  const ValueId on = context.add("OneHot", {context.input(0), context.input(1), ends}, context.attributes());
  auto total = [&](ValueId x) {
    std::vector<int64_t> axes(context.dims(x).size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    return context.reshaped(context.sum(x, std::move(axes)), Dims{Dim(1)});
  };
  const ValueId of_on = total(context.times(dy, on)), of_all = total(dy);
  context.give(2, context.add("Concat", {context.minus(of_all, of_on), of_on}, first));
}

constexpr char scatter_nd[] = "ScatterND", gather_nd[] = "GatherND", scatter_elements[] = "ScatterElements",
               gather_elements[] = "GatherElements";

}  // namespace

void register_index_gradients(OpSet& ops) {
  ops.differentiate("Gather", of_gather);
  ops.differentiate("GatherElements", of_gather_elements);
  ops.differentiate("GatherND", of_gather_nd);
  ops.differentiate("TopK", of_top_k);
  ops.differentiate("OneHot", of_one_hot);
  ops.differentiate("ScatterND", of_scatter<scatter_nd, gather_nd>);
  ops.differentiate("ScatterElements", of_scatter<scatter_elements, gather_elements>);
}

}  // namespace plait
