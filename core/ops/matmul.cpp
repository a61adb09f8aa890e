// Matrix products: MatMul, MatMulInteger, Gemm.
#include <optional>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// A vector on the left has no rows, on the right no columns, as in NumPy's matmul.
std::optional<std::string> matmul_sides(const Type& left, const Type& right, std::string_view star, std::string_view k,
                                        std::string& result) {
  size_t a = rank_of(left), b = rank_of(right);
  if (a == 0 || b == 0) return std::nullopt;
  result = a == 1 && b == 1 ? "" : cat("...", a > 1 ? " q" : "", b > 1 ? " n" : "");
  return cat(star, a > 1 ? "... q " : "", k, ", ", star, b > 1 ? "... " : "", k, b > 1 ? " n" : "");
}

std::string matmul_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result;
  std::optional<std::string> operands = matmul_sides(in[0], in[1], "*", "k", result);
  return operands ? cat(*operands, " -> ", result) : "";
}

/// A zero point is one number, or one per row of a ([m] or [..., m, 1]), or per column of b ([n] or [..., 1, n]).
std::string zero_point_dims(const std::vector<Type>& in, size_t index, const char* vector, const char* matrix) {
  if (index >= in.size() || !in[index].dims || in[index].dims->empty()) return "";
  const Dims& dims = *in[index].dims;
  if (dims.size() == 1) return is_one(dims[0]) ? "1" : vector;
  return matrix;
}

std::string matmul_integer_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result, star = in.size() > 2 ? "" : "*";  // with a zero point, the product is not linear
  std::optional<std::string> operands = matmul_sides(in[0], in[1], star, "k", result);
  if (!operands) return "";
  return rule_text({*operands, zero_point_dims(in, 2, "q", "... q 1"), zero_point_dims(in, 3, "n", "... 1 n")},
                   {result});
}

/// Operands a, its scale and zero point, the same of b, and of y: scales and zero points are as MatMulInteger's. k is
/// whole, since the sum is rounded.
std::string qlinear_matmul_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result;
  std::optional<std::string> sides = matmul_sides(in[0], in[3], "", "[k]", result);
  if (!sides) return "";
  size_t comma = sides->find(',');
  std::vector<std::string> operands{sides->substr(0, comma)};
  for (size_t k : {size_t{1}, size_t{2}}) operands.push_back(zero_point_dims(in, k, "q", "... q 1"));
  operands.push_back(sides->substr(comma + 2));
  for (size_t k : {size_t{4}, size_t{5}}) operands.push_back(zero_point_dims(in, k, "n", "... 1 n"));
  for (size_t k : {size_t{6}, size_t{7}}) operands.push_back(in[k].dims->empty() ? "" : "1");
  return rule_text(operands, {result});
}

/// m of a and n of b, where they are known: c is broadcast to them.
std::pair<std::optional<Dim>, std::optional<Dim>> gemm_sizes(const Attributes& attributes, const Dims* a,
                                                             const Dims* b) {
  std::pair<std::optional<Dim>, std::optional<Dim>> out;
  if (a && a->size() == 2) out.first = (*a)[attributes.integer("transA", 0) ? 1 : 0];
  if (b && b->size() == 2) out.second = (*b)[attributes.integer("transB", 0) ? 0 : 1];
  return out;
}

void infer_gemm(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const auto [m, n] = gemm_sizes(context.attributes(), context.dims(0), context.dims(1));
  if (m && n) context.set_dims(0, {*m, *n});
}

/// C broadcasts to [m, n]. It must be added only once, so k is whole if there is one. A size of C that may be 1 or that of the result
/// is a factor of its own, and both are whole.
std::string gemm_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  bool bias = in.size() > 2 && in[2].dims;
  std::string k = bias ? "[k]" : "k", star = bias ? "" : "*";
  if (bias && in[2].dims->size() > 2) return "";
  DimNames names{"m", "n"}, added;
  if (bias) {
    const Dims& c = *in[2].dims;
    const auto [m, n] = gemm_sizes(node.attributes, &*in[0].dims, &*in[1].dims);
    for (size_t i = 0; i < c.size(); ++i) {
      const size_t axis = 2 - c.size() + i;
      const std::optional<Dim>& whole_size = axis ? n : m;
      const bool open = !c[i].is_constant() && (!whole_size || c[i] != *whole_size);
      added.push_back(is_one(c[i]) ? "1" : open ? whole(cat("c", axis)) : names[axis]);
      if (open) names[axis] = whole(names[axis]);
    }
  }
  std::string a = node.attributes.integer("transA", 0) ? cat(k, " ", names[0]) : cat(names[0], " ", k);
  std::string b = node.attributes.integer("transB", 0) ? cat(names[1], " ", k) : cat(k, " ", names[1]);
  std::vector<std::string> operands{star + a, star + b};
  if (bias) operands.push_back(spaced(added));
  return rule_text(operands, {spaced(names)});
}

}  // namespace

void register_matmul(OpSet& ops) {
  ops.add({.name = "MatMul", .inputs = "a b", .outputs = "y", .dims = "*... q k, *... k n -> ... q n",
           .dims_of = matmul_dims, .doc = "matrix product, over leading dims", .since = 13});
  ops.add({.name = "MatMulInteger", .inputs = "a b a_zero_point? b_zero_point?", .outputs = "y",
           .dims = "... q k, ... k n, , -> ... q n", .dims_of = matmul_integer_dims, .infer = infer_dtype<DType::i32>,
           .doc = "matrix product of 8-bit integers less their zero points, in i32", .since = 10});
  ops.add({.name = "QLinearMatMul",
           .inputs = "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point", .outputs = "y",
           .dims = "... q [k], , , ... [k] n, , , , -> ... q n", .dims_of = qlinear_matmul_dims, .infer = infer_dtype_of<7>,
           .doc = "matrix product of quantized numbers, quantized again", .since = 21});
  ops.add({.name = "Gemm",
           .inputs = "a b c?",
           .outputs = "y",
           .attributes =
               {{"alpha", "float", "1"}, {"beta", "float", "1"}, {"transA", "int", "0"}, {"transB", "int", "0"}},
           .dims = "m [k], [k] n, n -> m n",
           .dims_of = gemm_dims,
           .infer = infer_gemm,
           .doc = "alpha a b + beta c",
           .since = 13});
  ops.add({.name = "Det", .inputs = "x", .outputs = "y", .dims = "... [n] [n] -> ...", .ranks = "2-",
           .doc = "determinants of the matrices of the last two dims", .since = 22});
}

}  // namespace plait
