#include "core/ops/base/rows.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

std::string factor_name(size_t index) {
  std::string letter(1, static_cast<char>('a' + index % 26));
  return index < 26 ? letter : cat(letter, index / 26);
}

DimNames dim_names(size_t rank, size_t first) {
  DimNames out;
  for (size_t i = 0; i < rank; ++i) out.push_back(factor_name(first + i));
  return out;
}

std::string whole(std::string_view name) { return cat("[", name, "]"); }

DimNames all_whole(DimNames names) {
  for (std::string& name : names) name = whole(name);
  return names;
}

std::string spaced(const DimNames& names) { return join(names, " "); }

std::string rule_text(const std::vector<std::string>& operands, const std::vector<std::string>& results) {
  return cat(join(operands, ", "), " -> ", join(results, ", "));
}

bool is_absent(const std::vector<Type>& in, size_t k) { return k >= in.size() || !in[k].dims; }
size_t rank_of(const Type& type) { return type.dims->size(); }

std::string aligned(const DimNames& names, const Dims& operand) {
  if (operand.size() > names.size())
    InferContext::fail(cat("an operand of rank ", operand.size(), " is broadcast to rank ", names.size()));
  DimNames out;
  size_t skipped = names.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i) out.push_back(is_one(operand[i]) ? "1" : names[skipped + i]);
  return spaced(out);
}

std::optional<size_t> maybe_axis(int64_t axis, size_t rank) {
  auto count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

size_t checked_axis(int64_t axis, size_t rank) {
  std::optional<size_t> out = maybe_axis(axis, rank);
  if (!out) InferContext::fail(cat("axis ", axis, " is out of range for rank ", rank));
  return *out;
}

std::optional<std::vector<int64_t>> numbers(const Dims* elements) {
  if (!elements) return std::nullopt;
  std::vector<int64_t> out;
  for (const Dim& element : *elements) {
    if (!element.is_constant()) return std::nullopt;
    out.push_back(element.constant());
  }
  return out;
}

namespace {

template <class T>
T first_element(const Tensor& tensor) {
  T out;  // a file's bytes may be unaligned
  std::memcpy(&out, tensor.data(), sizeof out);
  return out;
}

}  // namespace

std::optional<double> number(const Tensor* tensor) {
  if (!tensor || tensor->elements() != 1) return std::nullopt;
  switch (tensor->dtype()) {
    case DType::f32: return first_element<float>(*tensor);
    case DType::f64: return first_element<double>(*tensor);
    case DType::f16: return to_float(first_element<Float16>(*tensor));
    case DType::bf16: return to_float(first_element<BFloat16>(*tensor));
    default: break;
  }
  if (!is_integer(tensor->dtype())) return std::nullopt;
  return static_cast<double>(to_ints(tensor->view())[0]);
}

const Dim* single(const Dims* elements) { return elements && elements->size() == 1 ? &elements->front() : nullptr; }

std::optional<size_t> known_length(const Dims* dims) {
  if (!dims || dims->size() != 1 || !dims->front().is_constant()) return std::nullopt;
  int64_t length = dims->front().constant();
  // Longer than any rank: callers reject it as a rank.
  return static_cast<size_t>(std::min<int64_t>(std::max<int64_t>(length, 0), Shape::max_rank + 1));
}

bool is_one(const Dim& dim) { return dim == Dim(1); }
bool is_minus_one(const Dim& dim) { return dim == Dim(-1); }

Dims unknown_dims(InferContext& context, size_t rank, std::string_view stem) {
  Dims out;
  for (size_t i = 0; i < rank; ++i) out.push_back(context.unknown(stem));
  return out;
}

void infer_same(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

void infer_identity(InferContext& context) {
  infer_same(context);
  if (const Dims* elements = context.contents(0)) context.set_contents(0, *elements);
}

DType dtype_attribute(const Attributes& attributes, std::string_view name, DType fallback) {
  if (!attributes.has(name)) return fallback;
  int64_t number = attributes.integer(name);
  auto dtype = static_cast<DType>(number);
  if (number <= 0 || number > static_cast<int64_t>(DType::i2) || dtype_name(dtype).empty())
    InferContext::fail(cat("attribute ", quote(name), " is ", number, ", which is no element type"),
                       cat("set it to a TensorProto.DataType from 1 to ", static_cast<int64_t>(DType::i2)));
  return dtype;
}

}  // namespace plait
