// Slice and Split: parts of a dim.
#include <algorithm>
#include <limits>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

// ---- Slice ----

/// Beyond any dim: exporters write INT64_MAX or INT32_MAX for "to the end".
bool endless(const Dim& value) {
  return value.is_constant() && value.constant() >= std::numeric_limits<int32_t>::max();
}

/// A start or end of a forward slice, clamped to [0, size]; nullopt if that depends on symbols. A sliced dim is
/// assumed to have an element, so that x[-1:] is one element and x[1:] one less than x; kernels clamp again.
std::optional<Dim> clamped(const Dim& value, const Dim& size) {
  if (endless(value)) return size;
  Dim at = value.is_constant() && value.constant() < 0 ? size + value : value;
  if (!size.is_constant() && (is_one(at) || at == size - Dim(1))) return at;
  // A difference of sizes (s - window) may be negative, and would then count from the end.
  if (!at.is_constant() && !never_negative(at)) return std::nullopt;
  std::optional<Dim> low = known_max(at, Dim(0));
  return low ? known_min(*low, size) : std::nullopt;
}

std::optional<Dim> forward_length(const Dim& start, const Dim& end, int64_t step, const Dim& size) {
  std::optional<Dim> from = clamped(start, size), to = clamped(end, size);
  if (!from || !to) return std::nullopt;
  Dim span = *to - *from;
  if (span.is_constant() && span.constant() < 0) return Dim(0);
  // x[1:] of a symbolic size: at least one element, as assumed by `clamped`.
  bool enough = never_negative(span) || (!size.is_constant() && never_negative(span + Dim(1)));
  return enough ? known_ceiling(span, Dim(step)) : std::nullopt;
}

/// Backwards, for numbers, and for a whole dim of any size.
std::optional<Dim> backward_length(const Dim& start, const Dim& end, int64_t step, const Dim& size) {
  bool to_front = end.is_constant() && end.constant() <= -int64_t{std::numeric_limits<int32_t>::max()};
  if (!size.is_constant()) {
    bool from_back = is_minus_one(start) || endless(start);
    return from_back && to_front && step == -1 ? std::optional(size) : std::nullopt;
  }
  if (!start.is_constant() || !end.is_constant()) return std::nullopt;
  int64_t n = size.constant();
  if (n == 0) return Dim(0);
  // The first element is one; the end may be before it.
  auto position = [n](int64_t at, int64_t least) {
    return std::clamp<int64_t>(at < 0 ? std::max<int64_t>(at, -n - 1) + n : at, least, n - 1);
  };
  int64_t span = position(start.constant(), 0) - (to_front ? -1 : position(end.constant(), -1));
  int64_t stride = step == std::numeric_limits<int64_t>::min() ? std::numeric_limits<int64_t>::max() : -step;
  return Dim(span <= 0 ? 0 : (span - 1) / stride + 1);
}

std::optional<Dim> slice_length(const Dim& start, const Dim& end, int64_t step, const Dim& size) {
  return step > 0 ? forward_length(start, end, step, size) : backward_length(start, end, step, size);
}

struct SliceAxis {
  size_t axis;
  const Dim* start = nullptr;
  const Dim* end = nullptr;
  std::optional<int64_t> step;
};

/// The sliced axes; nullopt if they are unknown. Unknown starts, ends and steps are null.
std::optional<std::vector<SliceAxis>> slice_axes(InferContext& context, size_t rank) {
  std::optional<std::vector<int64_t>> axes = numbers(context.contents(3));
  std::optional<size_t> count = known_length(context.dims(1));
  if (!count) count = known_length(context.dims(2));
  if (axes) count = axes->size();
  if (!count || (context.has(3) && !axes)) return std::nullopt;
  std::optional<std::vector<int64_t>> steps = numbers(context.contents(4));
  std::vector<SliceAxis> out;
  for (size_t i = 0; i < *count; ++i) {
    SliceAxis one{checked_axis(axes ? (*axes)[i] : static_cast<int64_t>(i), rank)};
    auto pick = [&](int input) {
      const Dims* all = context.contents(input);
      if (all && all->size() != *count) InferContext::fail("starts, ends, axes and steps have different lengths");
      return all ? &(*all)[i] : nullptr;
    };
    one.start = pick(1);
    one.end = pick(2);
    if (steps && steps->size() != *count) InferContext::fail("steps and axes have different lengths");
    if (!context.has(4)) one.step = 1;
    else if (steps) one.step = (*steps)[i];
    if (one.step == 0) InferContext::fail("a step is 0");
    out.push_back(one);
  }
  return out;
}

/// Contents of a slice with known numbers.
void slice_contents(InferContext& context, const SliceAxis& slice) {
  const Dims* all = context.contents(0);
  if (!all || !slice.start || !slice.end || slice.step != 1) return;
  std::optional<Dim> from = clamped(*slice.start, Dim(static_cast<int64_t>(all->size())));
  std::optional<Dim> to = clamped(*slice.end, Dim(static_cast<int64_t>(all->size())));
  if (!from || !to || !from->is_constant() || !to->is_constant()) return;
  Dims out;
  for (int64_t i = from->constant(); i < to->constant(); ++i) out.push_back((*all)[static_cast<size_t>(i)]);
  context.set_contents(0, std::move(out));
}

void infer_slice(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  std::optional<std::vector<SliceAxis>> slices = slice_axes(context, dims->size());
  if (!slices) return context.set_dims(0, unknown_dims(context, dims->size(), "slice"));
  Dims out = *dims;
  for (const SliceAxis& slice : *slices) {
    std::optional<Dim> length;
    if (slice.start && slice.end && slice.step)
      length = slice_length(*slice.start, *slice.end, *slice.step, (*dims)[slice.axis]);
    out[slice.axis] = length ? *length : context.unknown("slice");
  }
  if (dims->size() == 1 && slices->size() == 1) slice_contents(context, slices->front());
  context.set_dims(0, std::move(out));
}

/// A dim that keeps its size is not sliced, unless a negative step reverses it. A rule sees no elements, so with a
/// steps operand all dims are whole: a pass that removes steps of 1 frees the other dims.
std::string slice_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims) return "";
  bool stepped = in.size() > 4 && in[4].dims;
  DimNames before = dim_names(rank_of(in[0])), after = before;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!stepped && (*in[0].dims)[i] == (*out[0].dims)[i]) continue;
    before[i] = whole(before[i]);
    after[i] = whole(factor_name(before.size() + i));
  }
  std::vector<std::string> operands{"*" + spaced(before)};
  for (size_t k = 1; k < in.size(); ++k) operands.push_back(in[k].dims ? whole("axes") : "");
  return rule_text(operands, {spaced(after)});
}

// ---- Split ----

/// Sizes of the parts along the axis.
Dims split_sizes(InferContext& context, const Dim& size) {
  auto count = static_cast<size_t>(context.outputs());
  if (const Dims* given = context.contents(1)) {
    if (given->size() != count)
      InferContext::fail(cat("there are ", given->size(), " split sizes for ", count, " outputs"));
    Dim sum;
    for (const Dim& part : *given) sum = sum + part;
    if (sum.is_constant() && size.is_constant() && sum != size)
      InferContext::fail(cat("the split sizes sum to ", sum.constant(), ", the dimension is ", size.constant()));
    return *given;
  }
  if (context.has(1)) return unknown_dims(context, count, "split");
  int64_t parts = context.attributes().integer("num_outputs", static_cast<int64_t>(count));
  if (parts != static_cast<int64_t>(count))
    InferContext::fail(cat("attribute \"num_outputs\" is ", parts, ", the node has ", count, " outputs"));
  std::optional<Dim> chunk = known_ceiling(size, Dim(parts));
  if (!chunk) return unknown_dims(context, count, "split");
  Dims out(count - 1, *chunk);
  out.push_back(size - *chunk * Dim(parts - 1));
  return out;
}

void infer_split(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) context.set_type(k, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  size_t axis = checked_axis(context.attributes().integer("axis", 0), dims->size());
  Dims sizes = split_sizes(context, (*dims)[axis]);
  for (const Dim& size : sizes)
    if (size.is_constant() && size.constant() < 0) InferContext::fail("a part would have a negative size");
  const Dims* elements = context.contents(0);
  size_t begin = 0;
  for (int k = 0; k < context.outputs(); ++k) {
    Dims out = *dims;
    out[axis] = sizes[static_cast<size_t>(k)];
    if (elements && out[axis].is_constant() &&
        begin + static_cast<size_t>(out[axis].constant()) <= elements->size()) {
      auto from = elements->begin() + static_cast<std::ptrdiff_t>(begin);
      context.set_contents(k, Dims(from, from + out[axis].constant()));
      begin += static_cast<size_t>(out[axis].constant());
    } else {
      elements = nullptr;
    }
    context.set_dims(k, std::move(out));
  }
}

std::string split_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  DimNames names = dim_names(rank_of(in[0]));
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), names.size());
  if (!axis) return "";
  names[*axis] = whole(names[*axis]);
  std::vector<std::string> operands{"*" + spaced(names)}, results;
  if (in.size() > 1) operands.push_back(in[1].dims ? whole("parts") : "");
  for (size_t k = 0; k < out.size(); ++k) {
    names[*axis] = whole(factor_name(names.size() + k));
    results.push_back(spaced(names));
  }
  return rule_text(operands, results);
}

}  // namespace

void register_slices(OpSet& ops) {
  ops.add({.name = "Slice", .inputs = "data starts ends axes? steps?", .outputs = "output",
           .dims = "*b [s] h, [n], [n], [n] -> b [t] h", .dims_of = slice_dims, .infer = infer_slice,
           .doc = "a range of each axis named", .since = 13});
  ops.add({.name = "Split", .inputs = "input split?", .outputs = "outputs...",
           .attributes = {{"axis", "int", "0"}, {"num_outputs", "int", ""}},
           .dims = "*b [s] h, [n] -> b [t] h, b [u] h", .dims_of = split_dims, .infer = infer_split,
           .doc = "consecutive parts of an axis", .since = 18});
}

}  // namespace plait
