#pragma once
// Helpers for schema rows: names of dims in rules, axes, known numbers.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// One text per dim, for rules made by code: "a", "[b]", "1", "(c d)".
using DimNames = std::vector<std::string>;

/// "a", "b", ... "z", "a1", ...: any number of distinct factor names.
std::string factor_name(size_t index);
/// `rank` of them, from number `first`.
DimNames dim_names(size_t rank, size_t first = 0);
/// "[a]"
std::string whole(std::string_view name);
DimNames all_whole(DimNames names);
/// "a b c"
std::string spaced(const DimNames& names);
/// "*a b, c -> a b": operands carry their own "*" or "+".
std::string rule_text(const std::vector<std::string>& operands, const std::vector<std::string>& results);

size_t rank_of(const Type& type);  ///< of known dims
/// Whether operand k is absent, or of unknown rank.
bool is_absent(const std::vector<Type>& in, size_t k);

/// The names of an operand's dims, aligned right to `names`. A dim of constant size 1 is "1". Throws Error(bad_model)
/// if the operand's rank is greater.
std::string aligned(const DimNames& names, const Dims& operand);

/// `axis` counted from the front. Throws Error(bad_model) if it is not in [-rank, rank).
size_t checked_axis(int64_t axis, size_t rank);
/// The same for dims rules: nullopt if out of range.
std::optional<size_t> maybe_axis(int64_t axis, size_t rank);

/// The elements as numbers, if all are known and constant.
std::optional<std::vector<int64_t>> numbers(const Dims* elements);
/// The only element of a float or integer tensor as a number; nullopt if unknown.
std::optional<double> number(const Tensor* tensor);
/// The element of a one-element operand, if known; otherwise null.
const Dim* single(const Dims* elements);
/// The number of elements of a rank 1 operand, if known.
std::optional<size_t> known_length(const Dims* dims);

bool is_one(const Dim& dim);
bool is_minus_one(const Dim& dim);

/// Dims of `rank` data-dependent sizes.
Dims unknown_dims(InferContext& context, size_t rank, std::string_view stem);

/// Output 0 has input 0's type and dims. Other outputs stay open.
void infer_same(InferContext& context);
/// The same with input 0's elements, so that their contents are known too.
void infer_identity(InferContext& context);
/// As infer_same for ops with an attribute "axis", `fallback` if absent. Throws Error(bad_model) if the operand has no
/// such axis; a scalar counts as a list of one.
template <int64_t fallback>
void infer_along(InferContext& context) {
  if (const Dims* dims = context.dims(0))
    checked_axis(context.attributes().integer("axis", fallback), dims->empty() ? 1 : dims->size());
  infer_same(context);
}
/// Result k, if wanted, is the gradient of operand of[k], and as that. Throws Error(bad_model) if the operand is absent.
template <int... of>
void infer_gradients(InferContext& context) {
  int k = 0;
  for (const int operand : {of...}) {
    if (k < context.outputs() && context.wants(k)) {
      if (operand >= context.inputs() || !context.has(operand))
        InferContext::fail("it has a result that is the gradient of an absent operand");
      context.set_type(k, context.dtype(operand));
      if (const Dims* dims = context.dims(operand)) context.set_dims(k, *dims);
    }
    ++k;
  }
}
/// Output 0 has this dtype (or input `from`'s) and the dims of the dims rule.
template <DType dtype>
void infer_dtype(InferContext& context) {
  context.set_type(0, dtype);
}
template <int from>
void infer_dtype_of(InferContext& context) {
  context.set_type(0, context.dtype(from));
}

/// The dtype of attribute `name` (a number of TensorProto.DataType), `fallback` if it is absent. Throws
/// Error(bad_model) for an unknown number.
DType dtype_attribute(const Attributes& attributes, std::string_view name, DType fallback);

}  // namespace plait
