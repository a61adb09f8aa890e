// Ops that make values from sizes: Shape, Size, Range, ConstantOfShape, EyeLike.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

void infer_shape(InferContext& context) {
  context.set_type(0, DType::i64);
  const Dims* dims = context.dims(0);
  if (!dims) return;
  auto rank = static_cast<int64_t>(dims->size());
  auto clamp = [rank](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(context.attributes().integer("start", 0));
  int64_t end = std::max(start, clamp(context.attributes().integer("end", rank)));
  Dims out(dims->begin() + start, dims->begin() + end);
  context.set_dims(0, {Dim(end - start)});
  context.set_contents(0, std::move(out));
}

void infer_size(InferContext& context) {
  context.set(0, DType::i64, {});
  if (const Dims* dims = context.dims(0)) context.set_contents(0, {product(*dims)});
}

// ---- Range ----

void infer_float_range(InferContext& context) {
  std::optional<double> start = number(context.constant(0)), limit = number(context.constant(1)),
                        delta = number(context.constant(2));
  if (!start || !limit || !delta || *delta == 0) return context.set_dims(0, {context.unknown("range")});
  double length = std::ceil((*limit - *start) / *delta);
  if (!(length < 1e15)) InferContext::fail("a range has no end");
  context.set_dims(0, {Dim(static_cast<int64_t>(std::max(length, 0.0)))});
}

/// (limit - start) / delta, rounded up; nullopt if it may be negative.
std::optional<Dim> range_length(const Dim& start, const Dim& limit, const Dim& delta) {
  if (delta == Dim(0)) InferContext::fail("a range has a step of 0");
  Dim span = limit - start;
  std::optional<Dim> length = known_ceiling(span, delta);
  if (!length) return std::nullopt;
  if (length->is_constant()) return known_max(*length, Dim(0));
  return never_negative(*length) ? length : std::nullopt;
}

/// Exporters also pass lists of one number.
std::string range_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::vector<std::string> operands;
  for (const Type& type : in) {
    if (!type.dims->empty() && !is_one((*type.dims)[0])) return "";
    operands.push_back(type.dims->empty() ? "" : "1");
  }
  return rule_text(operands, {whole("s")});
}

void infer_range(InferContext& context) {
  context.set_type(0, context.dtype(0));
  for (int i = 0; i < 3; ++i) {
    const Dims* dims = context.dims(i);
    if (!dims || dims->empty() || (dims->size() == 1 && (is_one((*dims)[0]) || !(*dims)[0].is_constant()))) continue;
    InferContext::fail(cat("input ", i, " of a range is not a single number"));
  }
  if (is_float(context.dtype(0))) return infer_float_range(context);
  const Dim *start = single(context.contents(0)), *limit = single(context.contents(1)),
            *delta = single(context.contents(2));
  std::optional<Dim> length;
  if (start && limit && delta) length = range_length(*start, *limit, *delta);
  if (!length) return context.set_dims(0, {context.unknown("range")});
  if (length->is_constant() && length->constant() <= 64) {
    Dims out;
    for (int64_t i = 0; i < length->constant(); ++i) out.push_back(*start + Dim(i) * *delta);
    context.set_contents(0, std::move(out));
  }
  context.set_dims(0, {*length});
}

// ---- ConstantOfShape, EyeLike, NonZero ----

void infer_constant_of_shape(InferContext& context) {
  const Attribute* value = context.attributes().find("value");
  const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
  context.set_type(0, tensor ? tensor->dtype() : DType::f32);
  const Dims* dims = context.contents(0);
  if (!dims) {
    if (auto rank = known_length(context.dims(0))) context.set_dims(0, unknown_dims(context, *rank, "constant"));
    return;
  }
  bool listed = dims->empty() || (dims->size() == 1 && (*dims)[0].is_constant() && (*dims)[0].constant() <= 64);
  bool integer = tensor && (is_integer(tensor->dtype()) || tensor->dtype() == DType::boolean);
  if (listed && integer && tensor->elements() == 1) {
    size_t count = dims->empty() ? 1 : static_cast<size_t>(std::max<int64_t>((*dims)[0].constant(), 0));
    context.set_contents(0, Dims(count, Dim(to_ints(tensor->view())[0])));
  }
  context.set_dims(0, *dims);
}

void infer_eye_like(InferContext& context) {
  context.set_type(0, dtype_attribute(context.attributes(), "dtype", context.dtype(0)));
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

/// Number of elements that are not zero: any bit but the sign of a float is set.
std::optional<int64_t> count_nonzero(const Tensor* tensor) {
  if (!tensor || dtype_bits(tensor->dtype()) % 8 || tensor->dtype() == DType::string) return std::nullopt;
  int64_t size = dtype_bits(tensor->dtype()) / 8, count = 0;
  bool is_signed_zero = is_float(tensor->dtype());
  const auto* bytes = tensor->as<uint8_t>();
  for (int64_t i = 0; i < tensor->elements(); ++i, bytes += size) {
    int any = 0;
    for (int64_t k = 0; k < size; ++k) any |= is_signed_zero && k == size - 1 ? bytes[k] & 0x7F : bytes[k];
    count += any != 0;
  }
  return count;
}

/// The number of distinct elements depends on data.
void infer_unique(InferContext& context) {
  context.set_type(0, context.dtype(0));
  Dim distinct = context.unknown("distinct");
  const Dims* dims = context.dims(0);
  bool along = context.attributes().has("axis");
  if (!along) context.set_dims(0, {distinct});
  if (along && dims) {
    Dims out = *dims;
    out[checked_axis(context.attributes().integer("axis"), out.size())] = distinct;
    context.set_dims(0, std::move(out));
  }
  for (int output = 1; output < context.outputs(); ++output)
    if (context.wants(output)) {
      context.set_type(output, DType::i64);
      if (output != 2) context.set_dims(output, {distinct});
      else context.set_dims(output, {dims && !along ? product(*dims) : context.unknown("elements")});
    }
}

void infer_nonzero(InferContext& context) {
  context.set_type(0, DType::i64);
  std::optional<int64_t> count = count_nonzero(context.constant(0));
  Dim found = count ? Dim(*count) : context.unknown("nonzero");
  if (const Dims* dims = context.dims(0)) context.set_dims(0, {Dim(static_cast<int64_t>(dims->size())), found});
}

}  // namespace

void register_generators(OpSet& ops) {
  ops.add({.name = "Shape",
           .inputs = "data",
           .outputs = "shape",
           .attributes = {{"start", "int", "0"}, {"end", "int", ""}},
           .infer = infer_shape,
           .doc = "the sizes of the dims [start, end)",
           .since = 24});
  ops.add({.name = "Size",
           .inputs = "data",
           .outputs = "size",
           .infer = infer_size,
           .doc = "the number of elements",
           .since = 24});
  ops.add({.name = "Range",
           .inputs = "start limit delta",
           .outputs = "output",
           .dims = ", , -> [s]",
           .dims_of = range_dims,
           .infer = infer_range,
           .doc = "start, start + delta, ... before limit",
           .since = 11});
  ops.add({.name = "ConstantOfShape",
           .inputs = "input",
           .outputs = "output",
           .attributes = {{"value", "tensor", "0"}},
           .dims = "[n] -> b s",
           .dims_of = [](const Node&, const std::vector<Type>&, const std::vector<Type>& out) -> std::string {
             return out[0].dims ? rule_text({whole("n")}, {spaced(dim_names(rank_of(out[0])))}) : "";
           },
           .target = 0,
           .infer = infer_constant_of_shape,
           .doc = "one value in a shape",
           .since = 24});
  ops.add({.name = "EyeLike",
           .inputs = "input",
           .outputs = "output",
           .attributes = {{"dtype", "int", ""}, {"k", "int", "0"}},
           .dims = "[n] [m] -> [n] [m]",
           .infer = infer_eye_like,
           .doc = "ones on a diagonal, zeros elsewhere",
           .since = 22});
  ops.add({.name = "Unique",
           .inputs = "x",
           .outputs = "y indices? inverse_indices? counts?",
           .attributes = {{"axis", "int", ""}, {"sorted", "int", "1"}},
           .infer = infer_unique,
           .doc = "the distinct elements, or slices along an axis",
           .since = 11});
  ops.add({.name = "NonZero",
           .inputs = "x",
           .outputs = "y",
           .infer = infer_nonzero,
           .doc = "the indices of elements that are not zero: [rank, count]",
           .since = 13});
}

}  // namespace plait
