// Ops that read at indices.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

// ---- Gather ----

/// Elements of a rank 1 operand at known numbers.
void gather_contents(InferContext& context) {
  const Dims* data = context.contents(0);
  std::optional<std::vector<int64_t>> indices = numbers(context.contents(1));
  if (!data || !indices || !context.dims(0) || context.dims(0)->size() != 1) return;
  auto count = static_cast<int64_t>(data->size());
  Dims out;
  for (int64_t index : *indices) {
    if (index < -count || index >= count) InferContext::fail(cat("index ", index, " is out of range for ", count));
    out.push_back((*data)[static_cast<size_t>(index < 0 ? index + count : index)]);
  }
  context.set_contents(0, std::move(out));
}

void infer_gather(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* data = context.dims(0);
  const Dims* indices = context.dims(1);
  if (!data || !indices) return;
  size_t axis = checked_axis(context.attributes().integer("axis", 0), data->size());
  auto at = data->begin() + static_cast<std::ptrdiff_t>(axis);
  Dims out(data->begin(), at);
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), at + 1, data->end());
  gather_contents(context);
  context.set_dims(0, std::move(out));
}

std::string gather_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames data = dim_names(rank_of(in[0])), indices = dim_names(rank_of(in[1]), data.size());
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), data.size());
  if (!axis) return "";
  DimNames out(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(*axis));
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), data.begin() + static_cast<std::ptrdiff_t>(*axis) + 1, data.end());
  data[*axis] = whole(data[*axis]);
  return rule_text({"*" + spaced(data), spaced(indices)}, {spaced(out)});
}

// ---- GatherElements, GatherND, Compress, OneHot ----

void infer_gather_elements(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (const Dims* indices = context.dims(1)) context.set_dims(0, *indices);
}

/// Only the axis may be longer or shorter; indices shorter in other dims read their first part, so those are whole
/// too.
std::string gather_elements_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames data = dim_names(rank_of(in[0])), indices = data;
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), data.size());
  if (!axis || rank_of(in[1]) != data.size()) return "";
  for (size_t i = 0; i < data.size(); ++i) {
    if (i != *axis && (*in[0].dims)[i] == (*in[1].dims)[i]) continue;
    indices[i] = i == *axis ? factor_name(data.size()) : whole(factor_name(data.size() + 1 + i));
    data[i] = whole(data[i]);
  }
  return rule_text({"*" + spaced(data), spaced(indices)}, {spaced(indices)});
}

void infer_gather_nd(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* data = context.dims(0);
  const Dims* indices = context.dims(1);
  if (!data || !indices) return;
  if (indices->empty()) InferContext::fail("the indices are a scalar");
  if (!indices->back().is_constant()) return;
  int64_t depth = indices->back().constant(), batch = context.attributes().integer("batch_dims", 0);
  auto rank = static_cast<int64_t>(data->size());
  if (batch < 0 || batch > rank || depth < 1 || depth > rank - batch ||
      batch >= static_cast<int64_t>(indices->size()))
    InferContext::fail(cat("indices of depth ", depth, " after ", batch, " batch dims do not fit rank ", rank));
  Dims out(indices->begin(), indices->end() - 1);
  out.insert(out.end(), data->begin() + batch + depth, data->end());
  context.set_dims(0, std::move(out));
}

std::string gather_nd_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims || !in[1].dims->back().is_constant()) return "";
  auto depth = static_cast<size_t>(in[1].dims->back().constant());
  auto batch = static_cast<size_t>(node.attributes.integer("batch_dims", 0));
  DimNames data = dim_names(rank_of(in[0])), indices = dim_names(rank_of(in[1]), data.size());
  if (batch + depth > data.size()) return "";
  std::copy_n(data.begin(), batch, indices.begin());
  DimNames result(indices.begin(), indices.end() - 1);
  result.insert(result.end(), data.begin() + static_cast<std::ptrdiff_t>(batch + depth), data.end());
  for (size_t i = batch; i < batch + depth; ++i) data[i] = whole(data[i]);
  indices.back() = whole(indices.back());
  return rule_text({"*" + spaced(data), spaced(indices)}, {spaced(result)});
}

/// Number of true elements of a bool operand, if known.
std::optional<int64_t> count_true(const Tensor* condition, int64_t limit) {
  if (!condition || condition->dtype() != DType::boolean) return std::nullopt;
  int64_t count = 0;
  for (int64_t i = 0; i < std::min(limit, condition->elements()); ++i) count += condition->as<uint8_t>()[i] != 0;
  return count;
}

void infer_compress(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* data = context.dims(0);
  bool flat = !context.attributes().has("axis");
  if (!data) {
    if (flat) context.set_dims(0, {context.unknown("compress")});
    return;
  }
  size_t axis = flat ? 0 : checked_axis(context.attributes().integer("axis"), data->size());
  Dim length = flat ? product(*data) : (*data)[axis];
  std::optional<int64_t> count;
  if (length.is_constant()) count = count_true(context.constant(1), length.constant());
  Dim kept = count ? Dim(*count) : context.unknown("compress");
  Dims out = flat ? Dims{kept} : *data;
  out[axis] = kept;
  context.set_dims(0, std::move(out));
}

void infer_one_hot(InferContext& context) {
  context.set_type(0, context.dtype(2));
  const Dims* indices = context.dims(0);
  if (!indices) return;
  size_t axis = checked_axis(context.attributes().integer("axis", -1), indices->size() + 1);
  std::optional<Dim> depth;
  if (const Dim* known = single(context.contents(1))) depth = *known;
  else if (std::optional<double> real = number(context.constant(1)); real && std::abs(*real) < 1e15)
    depth = Dim(static_cast<int64_t>(*real));  // a float depth is legal
  Dims out = *indices;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(axis), depth ? *depth : context.unknown("one_hot"));
  context.set_dims(0, std::move(out));
}

std::string one_hot_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames indices = dim_names(rank_of(in[0])), out = indices;
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", -1), indices.size() + 1);
  if (!axis) return "";
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(*axis), whole("v"));
  std::string depth = in[1].dims->empty() ? "" : whole("n");
  return rule_text({spaced(indices), depth, whole("two")}, {spaced(out)});
}

}  // namespace

void register_gather(OpSet& ops) {
  ops.add({.name = "Gather",
           .inputs = "data indices",
           .outputs = "output",
           .attributes = {{"axis", "int", "0"}},
           .dims = "*[v] h, b s -> b s h",
           .dims_of = gather_dims,
           .infer = infer_gather,
           .doc = "rows of an axis, by index",
           .since = 13});
  ops.add({.name = "GatherElements",
           .inputs = "data indices",
           .outputs = "output",
           .attributes = {{"axis", "int", "0"}},
           .dims = "*b [s] h, b t h -> b t h",
           .dims_of = gather_elements_dims,
           .infer = infer_gather_elements,
           .doc = "elements of an axis, each by its own index",
           .since = 13});
  ops.add({.name = "GatherND",
           .inputs = "data indices",
           .outputs = "output",
           .attributes = {{"batch_dims", "int", "0"}},
           .dims = "*[s] [t] h, b [n] -> b h",
           .dims_of = gather_nd_dims,
           .infer = infer_gather_nd,
           .doc = "parts named by tuples of indices",
           .since = 13});
  ops.add({.name = "Compress",
           .inputs = "input condition",
           .outputs = "output",
           .attributes = {{"axis", "int", ""}},
           .infer = infer_compress,
           .doc = "the slices of an axis (or elements) whose condition holds",
           .since = 11});
  ops.add({.name = "OneHot",
           .inputs = "indices depth values",
           .outputs = "output",
           .attributes = {{"axis", "int", "-1"}},
           .dims = "b s, , [n] -> b s [v]",
           .dims_of = one_hot_dims,
           .infer = infer_one_hot,
           .doc = "values[1] at the index, values[0] elsewhere",
           .since = 11});
}

}  // namespace plait
