#pragma once
// What the files of rows share: names for the dims of rules, axes, known numbers.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// One text a dim, for rules written by code: "a", "[b]", "1", "(c d)".
using DimNames = std::vector<std::string>;

/// "a", "b", ... "z", "a1", ...: any number of distinct factor names.
std::string factor_name(size_t index);
/// `rank` of them, from number `first` on.
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

/// Two ranks whose dims are aligned right: dims of rank `rank`, those of the operand [rank - its rank, rank). A dim
/// of constant size 1 is "1", others are as in `names`. Throws Error(bad_model) when the operand's rank is the
/// greater.
std::string aligned(const DimNames& names, const Dims& operand);

/// `axis` counted from the front. Throws Error(bad_model) when it is not in [-rank, rank).
size_t checked_axis(int64_t axis, size_t rank);
/// The same for dims rules: nullopt instead.
std::optional<size_t> maybe_axis(int64_t axis, size_t rank);

/// The elements as numbers, when all are known and constant.
std::optional<std::vector<int64_t>> numbers(const Dims* elements);
/// The one element of a float or integer tensor as a number; nullopt when it is not there.
std::optional<double> number(const Tensor* tensor);
/// The element of an operand that holds one, if it is known; null otherwise.
const Dim* single(const Dims* elements);
/// The number of elements of a rank 1 operand, when it is known.
std::optional<size_t> known_length(const Dims* dims);

bool is_one(const Dim& dim);
bool is_minus_one(const Dim& dim);

/// Dims of `rank` sizes that only the data tell.
Dims unknown_dims(InferContext& context, size_t rank, std::string_view stem);

/// Output 0 has input 0's type and dims. Other outputs stay open.
void infer_same(InferContext& context);
/// The same where output 0 has input 0's elements, too, so that what is known of these is known of it.
void infer_identity(InferContext& context);
/// The same for ops with an attribute "axis", `fallback` where absent. Throws Error(bad_model) when the operand has no
/// such axis; a scalar counts as a list of one.
template <int64_t fallback>
void infer_along(InferContext& context) {
  if (const Dims* dims = context.dims(0))
    checked_axis(context.attributes().integer("axis", fallback), dims->empty() ? 1 : dims->size());
  infer_same(context);
}
/// Output 0 has the dtype given (input `from`'s) and the dims of the dims rule.
template <DType dtype>
void infer_dtype(InferContext& context) {
  context.set_type(0, dtype);
}
template <int from>
void infer_dtype_of(InferContext& context) {
  context.set_type(0, context.dtype(from));
}

/// The dtype that attribute `name` (a number of TensorProto.DataType) names, `fallback` when it is absent. Throws
/// Error(bad_model) for a number that is no dtype.
DType dtype_attribute(const Attributes& attributes, std::string_view name, DType fallback);

}  // namespace plait
