// Gradients of ops that move elements: their inverses, or sums over copies.
#include <algorithm>

#include "core/graph/gradient.h"
#include "core/ops/base/rows.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// The same elements in the previous dims.
void of_relayout(GradientContext& context) {
  context.give(0, context.reshaped(context.gradient(), context.input(0)));
}

void of_cast(GradientContext& context) { context.give(0, context.cast(context.gradient(), context.input(0))); }

void of_transpose(GradientContext& context) {
  const size_t rank = context.dims(context.input(0)).size();
  std::vector<int64_t> perm = context.attributes().integers("perm"), inverse(rank);
  for (size_t i = 0; i < rank; ++i)
    inverse[perm.empty() ? rank - 1 - i : static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  context.give(0, context.add("Transpose", {context.gradient()}, one_attribute("perm", std::move(inverse))));
}

void of_expand(GradientContext& context) { context.give(0, context.summed_to(context.gradient(), context.input(0))); }

/// [r d, ...] as [r, d, ...], summed over r.
void of_tile(GradientContext& context) {
  const ValueId x = context.input(0);
  const Dims from = context.dims(x), to = context.dims(context.output());
  Dims parted;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (to[i] == from[i]) {
      parted.push_back(from[i]);
      continue;
    }
    std::optional<Dim> times = to[i].divided(from[i]);
    if (!times) GradientContext::fail("how often it repeats is known only when it runs");
    axes.push_back(static_cast<int64_t>(parted.size()));
    parted.insert(parted.end(), {*times, from[i]});
  }
  context.give(0, context.reshaped(context.sum(context.reshaped(context.gradient(), parted), std::move(axes)), x));
}

void of_concat(GradientContext& context) {
  const std::vector<ValueId>& parts = context.node().inputs;
  const size_t axis = checked_axis(context.attributes().integer("axis"), context.dims(parts[0]).size());
  if (parts.size() == 1) return context.give(0, context.gradient());
  Dims sizes;
  for (ValueId part : parts) sizes.push_back(context.dims(part)[axis]);
  const std::vector<ValueId> gradients =
      context.add_all("Split", {context.gradient(), context.sizes(sizes)}, std::vector<bool>(parts.size(), true),
                      one_attribute("axis", static_cast<int64_t>(axis)));
  for (size_t k = 0; k < gradients.size(); ++k) context.give(k, context.reshaped(gradients[k], parts[k]));
}

/// Parts without a gradient are zeros.
void of_split(GradientContext& context) {
  std::vector<ValueId> parts;
  for (size_t k = 0; k < context.node().outputs.size(); ++k) {
    if (context.output(k) == no_value) GradientContext::fail("a part of the split has no value");
    parts.push_back(context.gradient(k) == no_value ? context.zeros(context.output(k)) : context.gradient(k));
  }
  const int64_t axis = context.attributes().integer("axis", 0);
  const ValueId dx = context.add("Concat", std::move(parts), one_attribute("axis", axis));
  context.give(0, context.reshaped(dx, context.input(0)));
}

/// Zeros outside the slice. Steps of 1 are left out, so that dims which are not sliced may be sharded.
void of_slice(GradientContext& context) {
  std::vector<ValueId> inputs{context.gradient(), context.sizes(context.input(0)),
                              context.input(1),   context.input(2),
                              context.input(3),   context.input(4)};
  const std::optional<std::vector<int64_t>> steps = context.constants(inputs[5]);
  if (steps && std::all_of(steps->begin(), steps->end(), [](int64_t step) { return step == 1; }))
    inputs[5] = no_value;
  while (inputs.back() == no_value) inputs.pop_back();
  context.give(0, context.add("plait.SliceBack", std::move(inputs)));
}

/// Padding by elements of x: each axis gathers by the indices that are padded alike.
void of_pad_by_elements(GradientContext& context) {
  const ValueId x = context.input(0);
  const size_t rank = context.dims(x).size();
  const std::optional<std::vector<int64_t>> pads = context.constants(context.input(1)),
                                            listed = context.constants(context.input(3));
  if (!pads || (context.input(3) != no_value && !listed))
    GradientContext::fail("what it pads is known only when it runs", "export the model with constant pads");
  std::vector<size_t> axes;
  for (size_t i = 0; i < pads->size() / 2; ++i) axes.push_back(listed ? checked_axis((*listed)[i], rank) : i);
  ValueId dx = context.gradient();
  auto scalar = [&](const Dim& size) { return context.reshaped(context.sizes(Dims{size}), Dims{}); };
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t before = (*pads)[i], after = (*pads)[i + axes.size()];
    if (before == 0 && after == 0) continue;
    Dims to = context.dims(dx);
    to[axes[i]] = context.dims(x)[axes[i]];
    const ValueId places = context.add("Range", {scalar(Dim(0)), scalar(to[axes[i]]), scalar(Dim(1))});
    const ValueId read = context.add("Pad", {places, context.integers({before, after})}, context.kept({"mode"}));
    dx = context.add("plait.GatherBack", {dx, read, context.sizes(to)},
                     one_attribute("axis", static_cast<int64_t>(axes[i])));
  }
  context.give(0, context.reshaped(dx, x));
}

/// Removes what was padded, and pads zeros where it cropped.
void of_pad(GradientContext& context) {
  if (context.attributes().string("mode", "constant") != "constant") return of_pad_by_elements(context);
  const ValueId dy = context.gradient(), pads = context.input(1), value = context.input(2), axes = context.input(3);
  const ValueId back = context.negative(pads), zero = context.number(0, dy), one = context.number(1, dy);
  auto padded = [&](ValueId x, ValueId by, ValueId with) {
    std::vector<ValueId> inputs{x, by, with};
    if (axes != no_value) inputs.push_back(axes);
    return context.add("Pad", std::move(inputs));
  };
  if (context.wants(0)) context.give(0, context.reshaped(padded(dy, back, zero), context.input(0)));
  if (context.wants(2)) {
    const ValueId put = context.times(dy, padded(context.zeros(context.input(0)), pads, one));
    std::vector<int64_t> all(context.dims(dy).size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    context.give(2, context.reshaped(context.sum(put, std::move(all)), value));
  }
}

void of_trilu(GradientContext& context) {
  std::vector<ValueId> inputs{context.gradient()};
  if (context.input(1) != no_value) inputs.push_back(context.input(1));
  context.give(0, context.add("Trilu", std::move(inputs), context.attributes()));
}

/// Cumulative sums from the other end.
void of_running_sum(GradientContext& context) {
  Attributes attributes = context.attributes();
  attributes.set("reverse", int64_t{attributes.integer("reverse", 0) == 0});
  context.give(0, context.add("CumSum", {context.gradient(), context.input(1)}, std::move(attributes)));
}

void of_running_product(GradientContext& context) {
  const std::optional<std::vector<int64_t>> axis = context.constants(context.input(1));
  if (!axis || axis->size() != 1) GradientContext::fail("its axis is known only when it runs");
  Attributes attributes = context.kept({"exclusive", "reverse"});
  attributes.set("axis", axis->front());
  context.give(0, context.add("plait.CumProdBack", {context.input(0), context.gradient()}, std::move(attributes)));
}

/// Either undoes the other.
template <const char* inverse>
void of_blocks(GradientContext& context) {
  const ValueId dx = context.add(inverse, {context.gradient()}, context.kept({"blocksize", "mode"}));
  context.give(0, context.reshaped(dx, context.input(0)));
}

constexpr char depth_to_space[] = "DepthToSpace", space_to_depth[] = "SpaceToDepth";

/// Reversed once more.
void of_reversed(GradientContext& context) {
  context.give(0, context.add("ReverseSequence", {context.gradient(), context.input(1)}, context.attributes()));
}

/// What was cropped around the centre is padded around it.
void of_crop(GradientContext& context) {
  const Dims dims = context.dims(context.input(0));
  Dims sizes;
  for (int64_t axis : context.attributes().integers("axes")) sizes.push_back(dims[checked_axis(axis, dims.size())]);
  if (!context.attributes().has("axes")) sizes = dims;
  context.give(0, context.add("CenterCropPad", {context.gradient(), context.sizes(sizes)}, context.kept({"axes"})));
}

}  // namespace

void register_layout_gradients(OpSet& ops) {
  for (const char* op : {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}) ops.differentiate(op, of_relayout);
  for (const char* op : {"Cast", "CastLike"}) ops.differentiate(op, of_cast);
  ops.differentiate("Transpose", of_transpose);
  ops.differentiate("Expand", of_expand);
  ops.differentiate("Tile", of_tile);
  ops.differentiate("Concat", of_concat);
  ops.differentiate("Split", of_split);
  ops.differentiate("Slice", of_slice);
  ops.differentiate("Pad", of_pad);
  ops.differentiate("Trilu", of_trilu);
  ops.differentiate("CumSum", of_running_sum);
  ops.differentiate("CumProd", of_running_product);
  ops.differentiate("DepthToSpace", of_blocks<space_to_depth>);
  ops.differentiate("SpaceToDepth", of_blocks<depth_to_space>);
  ops.differentiate("ReverseSequence", of_reversed);
  ops.differentiate("CenterCropPad", of_crop);
}

}  // namespace plait
