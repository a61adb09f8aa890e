// Matrix products: MatMul, MatMulInteger, Gemm.
#include <algorithm>
#include <initializer_list>
#include <optional>

#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/families.h"

namespace plait {

namespace {

/// A vector on the left has no rows, on the right no columns, as in NumPy's matmul.
std::optional<std::string> matmul_sides(const Type& left, const Type& right, std::string_view star,
                                        std::string_view k, std::string& result, std::string_view q = "q",
                                        std::string_view n = "n") {
  size_t a = rank_of(left), b = rank_of(right);
  if (a == 0 || b == 0) return std::nullopt;
  const std::string row = cat(" ", q), column = cat(" ", n);
  result = a == 1 && b == 1 ? "" : cat("...", a > 1 ? row : "", b > 1 ? column : "");
  return cat(star, a > 1 ? cat("...", row, " ") : "", k, ", ", star, b > 1 ? "... " : "", k, b > 1 ? column : "");
}

std::string matmul_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result;
  std::optional<std::string> operands = matmul_sides(in[0], in[1], "*", "k", result);
  return operands ? cat(*operands, " -> ", result) : "";
}

/// Scales and zero points of the rows of a or of the columns of b: one number, or one per line, [m] or [..., m, 1] and [n] or [..., 1, n].
/// A size that may be 1 or the lines' is a factor of its own, and both are whole.
class LinesOf {
 public:
  /// `operands`: which are such, of those that may follow.
  LinesOf(const std::vector<Type>& in, size_t matrix, std::string line, std::string matrices,
          std::initializer_list<size_t> operands)
      : name(std::move(line)), in_(in), matrices_(std::move(matrices)) {
    const Type& type = in[matrix];
    if (type.dims && type.dims->size() > 1) size_ = (*type.dims)[type.dims->size() - (name == "q" ? 2 : 1)];
    if (std::any_of(operands.begin(), operands.end(), [&](size_t k) { return is_open(k); })) name = whole(name);
  }

  std::string dims(size_t index) const {
    if (!has_dims(index)) return "";
    const Dims& own = *in_[index].dims;
    return own.size() > 1 ? matrices_ : is_one(own[0]) ? "1" : is_open(index) ? whole(cat("z", index)) : name;
  }

  std::string name;  ///< of the lines' factor

 private:
  bool has_dims(size_t index) const { return index < in_.size() && in_[index].dims && !in_[index].dims->empty(); }
  bool is_open(size_t index) const {
    if (!has_dims(index) || in_[index].dims->size() > 1) return false;
    const Dim& own = (*in_[index].dims)[0];
    return !own.is_constant() && (!size_ || own != *size_);
  }

  const std::vector<Type>& in_;
  std::string matrices_;
  std::optional<Dim> size_;
};

std::string matmul_integer_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result, star = in.size() > 2 ? "" : "*";  // with a zero point, the product is not linear
  const LinesOf rows(in, 0, "q", "... q 1", {2}), columns(in, 1, "n", "... 1 n", {3});
  std::optional<std::string> operands = matmul_sides(in[0], in[1], star, "k", result, rows.name, columns.name);
  return operands ? rule_text({*operands, rows.dims(2), columns.dims(3)}, {result}) : "";
}

/// Operands a, its scale and zero point, the same of b, and of y: scales and zero points are as MatMulInteger's. k is
/// whole, since the sum is rounded.
std::string qlinear_matmul_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string result;
  const LinesOf rows(in, 0, "q", "... q 1", {1, 2}), columns(in, 3, "n", "... 1 n", {4, 5});
  std::optional<std::string> sides = matmul_sides(in[0], in[3], "", "[k]", result, rows.name, columns.name);
  if (!sides) return "";
  size_t comma = sides->find(',');
  std::vector<std::string> operands{sides->substr(0, comma)};
  for (size_t k : {size_t{1}, size_t{2}}) operands.push_back(rows.dims(k));
  operands.push_back(sides->substr(comma + 2));
  for (size_t k : {size_t{4}, size_t{5}}) operands.push_back(columns.dims(k));
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
  ops.add({.name = "MatMul",
           .inputs = "a b",
           .outputs = "y",
           .dims = "*... q k, *... k n -> ... q n",
           .dims_of = matmul_dims,
           .doc = "matrix product, over leading dims",
           .since = 13});
  ops.add({.name = "MatMulInteger",
           .inputs = "a b a_zero_point? b_zero_point?",
           .outputs = "y",
           .dims = "... q k, ... k n, , -> ... q n",
           .dims_of = matmul_integer_dims,
           .infer = infer_dtype<DType::i32>,
           .doc = "matrix product of 8-bit integers less their zero points, in i32",
           .since = 10});
  ops.add({.name = "QLinearMatMul",
           .inputs = "a a_scale a_zero_point b b_scale b_zero_point y_scale y_zero_point",
           .outputs = "y",
           .dims = "... q [k], , , ... [k] n, , , , -> ... q n",
           .dims_of = qlinear_matmul_dims,
           .infer = infer_dtype_of<7>,
           .doc = "matrix product of quantized numbers, quantized again",
           .since = 21});
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
  ops.add({.name = "Det",
           .inputs = "x",
           .outputs = "y",
           .dims = "... [n] [n] -> ...",
           .ranks = "2-",
           .doc = "determinants of the matrices of the last two dims",
           .since = 22});
}

}  // namespace plait
