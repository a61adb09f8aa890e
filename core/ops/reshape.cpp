// Ops that keep the elements in their order and change only the dims.
#include <algorithm>

#include "core/ops/families.h"
#include "core/ops/relayout.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// With the same elements in the same order, contents are passed on if the output has rank 0 or 1.
void pass_contents(InferContext& context, size_t rank) {
  const Dims* elements = context.contents(0);
  if (elements && rank <= 1) context.set_contents(0, *elements);
}

/// The dims of a target of known elements: 0 copies the input's (unless allowzero), one -1 is the remaining size.
Dims resolve_target(InferContext& context, const Dims* input, const Dims& target) {
  bool copies = context.attributes().integer("allowzero", 0) == 0;
  Dims out;
  std::optional<size_t> rest;
  for (size_t i = 0; i < target.size(); ++i) {
    if (is_minus_one(target[i])) {
      if (rest) InferContext::fail("the target shape has more than one -1");
      rest = i;
      out.push_back(Dim(1));
    } else if (target[i] == Dim(0) && copies) {
      if (input && i >= input->size()) InferContext::fail("the target shape copies a dimension that is not there");
      out.push_back(input ? (*input)[i] : context.unknown("reshape"));
    } else {
      out.push_back(target[i]);
    }
  }
  if (!input) {
    if (rest) out[*rest] = context.unknown("reshape");
    return out;
  }
  Dim all = product(*input), others = product(out);
  bool numbers = all.is_constant() && others.is_constant();
  if (rest) {
    // With a zero among the others the remaining size is arbitrary; all runtimes use zero.
    std::optional<Dim> quotient = numbers && others == Dim(0) ? Dim(0) : all.divided(others);
    if (!quotient && numbers)
      InferContext::fail("the input's elements do not divide by the target shape's other dimensions");
    out[*rest] = quotient ? *quotient : context.unknown("reshape");
  } else if (numbers && all != others) {
    InferContext::fail("the input and the target shape have different numbers of elements");
  }
  return out;
}

void infer_reshape(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (const Dims* target = context.contents(1)) {
    Dims dims = resolve_target(context, context.dims(0), *target);
    pass_contents(context, dims.size());
    context.set_dims(0, std::move(dims));
  } else if (std::optional<size_t> rank = known_length(context.dims(1))) {
    context.set_dims(0, unknown_dims(context, *rank, "reshape"));
  }
}

void infer_flatten(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  int64_t axis = context.attributes().integer("axis", 1);
  size_t cut = axis == static_cast<int64_t>(dims->size()) ? dims->size() : checked_axis(axis, dims->size());
  auto all = std::span(*dims);
  context.set_dims(0, {product(all.subspan(0, cut)), product(all.subspan(cut))});
}

/// Axes of the second operand, normalised for a rank; nullopt if they are unknown.
std::optional<std::vector<size_t>> axes_in(InferContext& context, size_t rank) {
  std::optional<std::vector<int64_t>> given = numbers(context.contents(1));
  if (!given) return std::nullopt;
  std::vector<size_t> out;
  for (int64_t axis : *given) out.push_back(checked_axis(axis, rank));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) InferContext::fail("an axis occurs twice");
  return out;
}

void infer_unsqueeze(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  std::optional<std::vector<int64_t>> given = numbers(context.contents(1));
  if (!dims || !given) return;
  Dims out = *dims;
  std::vector<size_t> axes = *axes_in(context, dims->size() + given->size());
  // Ascending, so that each insert is at its final index.
  for (size_t axis : axes) out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), Dim(1));
  pass_contents(context, out.size());
  context.set_dims(0, std::move(out));
}

/// Whether any of these sizes may be 1 at run time.
bool squeezes_unknown(const Dims& dims) {
  return std::any_of(dims.begin(), dims.end(), [](const Dim& dim) { return !dim.is_constant(); });
}

void infer_squeeze(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  std::optional<std::vector<size_t>> axes;
  if (context.has(1)) {
    axes = axes_in(context, dims->size());
    if (!axes) return;
  } else if (context.exact() && squeezes_unknown(*dims)) {
    return;  // which sizes are 1, and so the rank, depends on the run
  }
  Dims out;
  for (size_t i = 0; i < dims->size(); ++i) {
    const Dim& dim = (*dims)[i];
    bool gone = axes ? std::find(axes->begin(), axes->end(), i) != axes->end() : is_one(dim);
    if (gone && dim.is_constant() && !is_one(dim)) InferContext::fail("a squeezed dimension is not 1");
    if (!gone) out.push_back(dim);
  }
  pass_contents(context, out.size());
  context.set_dims(0, std::move(out));
}

/// Without axes it removes sizes that are 1 at run time: open sizes are assumed to be larger.
bool squeeze_assumes(const Node& node, const std::vector<Type>& in) {
  if (node.inputs.size() > 1 && node.inputs[1] != no_value) return false;
  return !in[0].dims || squeezes_unknown(*in[0].dims);
}

std::string reshape_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  return relayout_rule(node, in, out);
}

}  // namespace

void register_reshape(OpSet& ops) {
  ops.add({.name = "Reshape",
           .inputs = "data shape",
           .outputs = "reshaped",
           .attributes = {{"allowzero", "int", "0"}},
           .dims = "*b s (g d), [n] -> b s g d",
           .dims_of = reshape_dims,
           .target = 1,
           .infer = infer_reshape,
           .view = true,
           .doc = "the same elements in other dims; 0 copies a dim, -1 is what is left",
           .since = 24});
  ops.add({.name = "Flatten",
           .inputs = "input",
           .outputs = "output",
           .attributes = {{"axis", "int", "1"}},
           .dims = "*b s h -> b (s h)",
           .dims_of = reshape_dims,
           .infer = infer_flatten,
           .view = true,
           .doc = "two dims: those before the axis, those from it on",
           .since = 24});
  ops.add({.name = "Squeeze",
           .inputs = "data axes?",
           .outputs = "squeezed",
           .dims = "*b 1 h, [n] -> b h",
           .dims_of = reshape_dims,
           .infer = infer_squeeze,
           .assumes = squeeze_assumes,
           .view = true,
           .doc = "without the dims of size 1 named",
           .since = 24});
  ops.add({.name = "Unsqueeze",
           .inputs = "data axes",
           .outputs = "expanded",
           .dims = "*b h, [n] -> b 1 h",
           .dims_of = reshape_dims,
           .infer = infer_unsqueeze,
           .view = true,
           .doc = "with dims of size 1 put in",
           .since = 24});
  ops.add({.name = "Identity",
           .inputs = "input",
           .outputs = "output",
           .dims = "*... -> ...",
           .infer = infer_identity,
           .view = true,
           .doc = "y = x",
           .since = 24});
}

}  // namespace plait
