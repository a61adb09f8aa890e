// Reductions, ArgMax and ArgMin, TopK.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

bool keeps_dims(const Attributes& attributes) { return attributes.integer("keepdims", 1) != 0; }

/// By dim: whether it is reduced; nullopt if the axes are unknown.
std::optional<std::vector<bool>> reduced_axes(InferContext& context, size_t rank) {
  std::optional<std::vector<int64_t>> axes;
  if (context.has(1)) {
    axes = numbers(context.contents(1));
    if (!axes) return std::nullopt;
  }
  if (!axes || axes->empty())
    return std::vector<bool>(rank, context.attributes().integer("noop_with_empty_axes", 0) == 0);
  std::vector<bool> out(rank);
  for (int64_t axis : *axes) out[checked_axis(axis, rank)] = true;
  return out;
}

Dims without(const Dims& dims, const std::vector<bool>& reduced, bool keep) {
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!reduced[i]) out.push_back(dims[i]);
    else if (keep) out.push_back(Dim(1));
  }
  return out;
}

void infer_reduce(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* dims = context.dims(0);
  if (!dims) return;
  std::optional<std::vector<bool>> reduced = reduced_axes(context, dims->size());
  bool keep = keeps_dims(context.attributes());
  if (reduced) context.set_dims(0, without(*dims, *reduced, keep));
  else if (keep) context.set_dims(0, unknown_dims(context, dims->size(), "reduce"));
  else if (auto count = known_length(context.dims(1)); count && *count <= dims->size())
    context.set_dims(0, unknown_dims(context, dims->size() - *count, "reduce"));
}

/// The same with the elements of a rank 1 operand combined.
template <Binary function>
void infer_reduce_elements(InferContext& context) {
  infer_reduce(context);
  const Dims* elements = context.contents(0);
  const Dims* dims = context.dims(0);
  if (!elements || elements->empty() || !dims || dims->size() != 1) return;
  std::optional<std::vector<bool>> reduced = reduced_axes(context, 1);
  if (!reduced || !(*reduced)[0]) return;
  std::optional<Dim> out = elements->front();
  for (size_t i = 1; out && i < elements->size(); ++i) out = function(*out, (*elements)[i]);
  if (out) context.set_contents(0, {*out});
}

std::optional<Dim> added(const Dim& a, const Dim& b) { return a.plus(b); }
std::optional<Dim> multiplied(const Dim& a, const Dim& b) { return a.times(b); }

/// The operand's reduced dims, derived from sizes only. With keepdims: those that became 1. Without: the unique way
/// to leave out dims; nullopt if there are several ([s, s] -> [s]).
std::optional<std::vector<bool>> reduced_by_sizes(const Dims& in, const Dims& out, bool keep) {
  std::vector<bool> reduced(in.size());
  if (keep) {
    if (in.size() != out.size()) return std::nullopt;
    for (size_t i = 0; i < in.size(); ++i) reduced[i] = in[i] != out[i];
    return reduced;
  }
  // The leftmost and the rightmost match of `out` within `in` agree if there is only one.
  std::vector<bool> right(in.size(), true);
  reduced.assign(in.size(), true);
  size_t found = 0, from_end = 0;
  for (size_t i = 0; i < in.size() && found < out.size(); ++i)
    if (in[i] == out[found]) reduced[i] = false, ++found;
  for (size_t i = in.size(); i-- > 0 && from_end < out.size();)
    if (in[i] == out[out.size() - 1 - from_end]) right[i] = false, ++from_end;
  if (found < out.size() || reduced != right) return std::nullopt;
  return reduced;
}

std::string reduce_text(const Type& in, const std::vector<bool>& reduced, bool keep, bool axis_whole,
                        std::string& result) {
  DimNames before = dim_names(in.dims->size()), after;
  for (size_t i = 0; i < before.size(); ++i) {
    if (is_one((*in.dims)[i])) before[i] = "1";
    if (!reduced[i]) after.push_back(before[i]);
    else if (keep) after.push_back("1");
    if (reduced[i] && axis_whole && before[i] != "1") before[i] = whole(before[i]);
  }
  result = spaced(after);
  return spaced(before);
}

/// Linearity and pending kind of each reduction; whole: the reduced dims must be whole.
struct ReduceForm {
  const char* star;
  const char* kind;
  bool whole;
};

constexpr ReduceForm summing{"*", "", false};
constexpr ReduceForm averaging{"*", "", false};
constexpr ReduceForm squaring{"", "", false};
constexpr ReduceForm greatest{"", " {max}", false};
constexpr ReduceForm smallest{"", " {min}", false};
constexpr ReduceForm together{"", "", true};

template <const ReduceForm& form>
std::string reduce_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims) return "";
  bool keep = keeps_dims(node.attributes);
  std::optional<std::vector<bool>> reduced = reduced_by_sizes(*in[0].dims, *out[0].dims, keep);
  if (!reduced) return "";
  // A mean of integers is rounded, so it is not a sum of parts.
  const bool rounds = &form == &averaging && is_integer(in[0].dtype);
  std::string result, operand = form.star + reduce_text(in[0], *reduced, keep, form.whole || rounds, result);
  std::vector<std::string> operands{operand};
  if (in.size() > 1) operands.push_back(in[1].dims ? whole("axes") : "");
  return rule_text(operands, {cat(result, form.kind)});
}

// ---- ArgMax, ArgMin, TopK: the axis is an attribute ----

void infer_arg(InferContext& context) {
  context.set_type(0, DType::i64);
  const Dims* dims = context.dims(0);
  if (!dims) return;
  std::vector<bool> reduced(dims->size());
  reduced[checked_axis(context.attributes().integer("axis", 0), dims->size())] = true;
  context.set_dims(0, without(*dims, reduced, keeps_dims(context.attributes())));
}

std::string arg_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), rank_of(in[0]));
  if (!axis) return "";
  std::vector<bool> reduced(rank_of(in[0]));
  reduced[*axis] = true;
  std::string result, operand = reduce_text(in[0], reduced, keeps_dims(node.attributes), true, result);
  return rule_text({operand}, {result});
}

void infer_top_k(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, DType::i64);
  const Dims* dims = context.dims(0);
  if (!dims) return;
  Dims out = *dims;
  const Dim* k = single(context.contents(1));
  Dim& size = out[checked_axis(context.attributes().integer("axis", -1), out.size())];
  if (k && known_less(size, *k) == true) InferContext::fail("k is greater than the axis it takes the largest of");
  size = k ? *k : context.unknown("top_k");
  context.set_dims(0, out);
  context.set_dims(1, std::move(out));
}

std::string top_k_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames before = dim_names(rank_of(in[0])), after = before;
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", -1), before.size());
  if (!axis) return "";
  before[*axis] = whole(before[*axis]);
  after[*axis] = whole(factor_name(before.size()));
  return rule_text({spaced(before), whole("one")}, {spaced(after), spaced(after)});
}

struct ReductionRow {
  const char* name;
  const char* dims;
  std::string (*dims_of)(const Node&, const std::vector<Type>&, const std::vector<Type>&);
  void (*infer)(InferContext&);
  int since;
  const char* doc;
};

}  // namespace

void register_reductions(OpSet& ops) {
  const ReductionRow rows[] = {
      {"ReduceSum", "*b s h, [n] -> b s", reduce_dims<summing>, infer_reduce_elements<added>, 13, "the sum"},
      {"ReduceMean", "*b s h, [n] -> b s", reduce_dims<averaging>, infer_reduce, 18, "the mean, over the global size"},
      {"ReduceMax", "b s h, [n] -> b s {max}", reduce_dims<greatest>, infer_reduce_elements<known_max>, 20,
       "the greatest"},
      {"ReduceMin", "b s h, [n] -> b s {min}", reduce_dims<smallest>, infer_reduce_elements<known_min>, 20,
       "the least"},
      {"ReduceProd", "b s [h], [n] -> b s", reduce_dims<together>, infer_reduce_elements<multiplied>, 18, "the product"},
      {"ReduceL1", "b s h, [n] -> b s", reduce_dims<squaring>, infer_reduce, 18, "the sum of absolutes"},
      {"ReduceL2", "b s [h], [n] -> b s", reduce_dims<together>, infer_reduce, 18, "the root of the sum of squares"},
      {"ReduceLogSum", "b s [h], [n] -> b s", reduce_dims<together>, infer_reduce, 18, "the logarithm of the sum"},
      {"ReduceLogSumExp", "b s [h], [n] -> b s", reduce_dims<together>, infer_reduce, 18,
       "the logarithm of the sum of powers of e"},
      {"ReduceSumSquare", "b s h, [n] -> b s", reduce_dims<squaring>, infer_reduce, 18, "the sum of squares"},
  };
  for (const ReductionRow& row : rows)
    ops.add({.name = row.name, .inputs = "data axes?", .outputs = "reduced",
             .attributes = {{"keepdims", "int", "1"}, {"noop_with_empty_axes", "int", "0"}, {"shards", "int", "1"}},
             .dims = row.dims,
             .dims_of = row.dims_of, .infer = row.infer, .doc = row.doc, .since = row.since});
  for (const char* name : {"ArgMax", "ArgMin"})
    ops.add({.name = name, .inputs = "data", .outputs = "reduced",
             .attributes = {{"axis", "int", "0"}, {"keepdims", "int", "1"}, {"select_last_index", "int", "0"}},
             .dims = "b s [v] -> b s", .dims_of = arg_dims, .infer = infer_arg,
             .doc = "where the extreme of an axis is, the first of equal ones by default", .since = 13});
  ops.add({.name = "TopK", .inputs = "x k", .outputs = "values indices",
           .attributes = {{"axis", "int", "-1"}, {"largest", "int", "1"}, {"sorted", "int", "1"}},
           .dims = "b [v], [n] -> b [k], b [k]", .dims_of = top_k_dims, .infer = infer_top_k,
           .doc = "the k extremes of an axis and where they are", .since = 24});
}

}  // namespace plait
