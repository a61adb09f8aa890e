// Gradients of products with weights, and of table lookups.
#include <numeric>
#include <utility>

#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// The first elements of the last dim, with the dims of `like`.
ValueId first_of(GradientContext& context, ValueId a, ValueId like) {
  const Dim size = context.dims(like).back();
  if (context.dims(a).back() == size) return a;
  const ValueId end = context.sizes(Dims{size});
  return context.reshaped(context.add("Slice", {a, context.integers({0}), end, context.integers({-1})}), like);
}

/// y = x w^T + bias: dx = dy w, dw = dy^T x, dbias the sum of all rows. A quantised weight has only dx, and its last
/// block may be larger than what x uses.
void of_linear(GradientContext& context) {
  const ValueId dy = context.gradient(), w = context.input(1), bias = context.input(2);
  if (context.wants(0)) {
    std::vector<ValueId> inputs{dy, w};
    if (context.input(3) != no_value) inputs.insert(inputs.end(), {context.input(3), context.input(4)});
    const ValueId dx = context.add("plait.LinearBack", std::move(inputs), context.kept({"round_x", "zero"}));
    context.give(0, first_of(context, dx, context.input(0)));
  }
  if (context.wants(1))
    context.give(
        1, context.cast(context.add("plait.LinearWeight", {dy, context.input(0)}, context.kept({"round_x"})), w));
  if (context.wants(2)) context.give(2, context.cast(context.summed_to(dy, bias), bias));
}

/// Rows accumulate the gradients of all ids that name them.
void of_embedding(GradientContext& context) {
  if (context.input(2) != no_value) GradientContext::fail("a quantised table has none", "train its adapters");
  const ValueId table = context.input(0);
  const ValueId sums =
      context.add("plait.EmbeddingBack", {context.gradient(), context.input(1), context.sizes(table)});
  context.give(0, context.cast(sums, table));
}

void of_gather_rows(GradientContext& context) {
  context.give(
      0, context.add("plait.RowsBack", {context.gradient(), context.input(1), context.sizes(context.input(0))}));
}

// ---- MatMul and Gemm ----

Attributes integers_of(std::initializer_list<std::pair<const char*, bool>> flags) {
  Attributes out;
  for (const auto& [name, value] : flags) out.set(name, int64_t{value});
  return out;
}

/// The last two dims exchanged.
ValueId transposed(GradientContext& context, ValueId a) {
  std::vector<int64_t> perm(context.dims(a).size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  Attributes attributes;
  attributes.set("perm", std::move(perm));
  return context.add("Transpose", {a}, std::move(attributes));
}

/// All dims but the last as one.
ValueId as_rows(GradientContext& context, ValueId a) {
  const Dims dims = context.dims(a);
  return context.reshaped(a, Dims{product(std::span(dims).first(dims.size() - 1)), dims.back()});
}

/// y = a b: dy b^T and a^T dy, where a vector is a matrix of one row or column. If several matrices of a share one b,
/// their rows form one matrix, so that no gradient of b per matrix of a is in memory.
void of_matmul(GradientContext& context) {
  ValueId a = context.input(0), b = context.input(1), dy = context.gradient();
  Dims left = context.dims(a), right = context.dims(b), out = context.dims(dy);
  if (right.size() == 1) {
    right.push_back(Dim(1));
    out.push_back(Dim(1));
  }
  if (left.size() == 1) {
    left.insert(left.begin(), Dim(1));
    out.insert(out.end() - 1, Dim(1));
  }
  a = context.reshaped(a, left), b = context.reshaped(b, right), dy = context.reshaped(dy, out);
  if (context.wants(0)) {
    const ValueId da = context.add("MatMul", {dy, transposed(context, b)});
    context.give(0, context.reshaped(context.summed_to(da, a), context.input(0)));
  }
  if (context.wants(1)) {
    if (right.size() == 2) a = as_rows(context, a), dy = as_rows(context, dy);
    const ValueId db = context.add("MatMul", {transposed(context, a), dy});
    context.give(1, context.reshaped(context.summed_to(db, b), context.input(1)));
  }
}

/// y = alpha A B + beta c, where A is a or its transpose, and B likewise: each gradient is such a product again.
void of_gemm(GradientContext& context) {
  const ValueId a = context.input(0), b = context.input(1), c = context.input(2), dy = context.gradient();
  const bool transposes_a = context.attributes().integer("transA", 0) != 0,
             transposes_b = context.attributes().integer("transB", 0) != 0;
  auto product_of = [&](ValueId left, bool transpose_left, ValueId right, bool transpose_right) {
    Attributes attributes = integers_of({{"transA", transpose_left}, {"transB", transpose_right}});
    attributes.set("alpha", context.attributes().real("alpha", 1));
    return context.add("Gemm", {left, right}, std::move(attributes));
  };
  if (context.wants(0))
    context.give(0, transposes_a ? product_of(b, transposes_b, dy, true) : product_of(dy, false, b, !transposes_b));
  if (context.wants(1))
    context.give(1, transposes_b ? product_of(dy, true, a, transposes_a) : product_of(a, !transposes_a, dy, false));
  if (context.wants(2)) {
    const ValueId sum = context.summed_to(dy, c);
    const double beta = context.attributes().real("beta", 1);
    context.give(2, beta == 1 ? sum : context.times(sum, context.number(beta, sum)));
  }
}

/// Dropped elements have no gradient, by the same mask.
void of_dropout(GradientContext& context) {
  context.give(0, context.add("plait.Dropout", {context.gradient(), context.input(1)}, context.attributes()));
}

void of_determinant(GradientContext& context) {
  context.give(0, context.add("plait.DetBack", {context.input(0), context.gradient()}));
}

}  // namespace

void register_linear_gradients(OpSet& ops) {
  ops.differentiate("Det", of_determinant);
  ops.differentiate("MatMul", of_matmul);
  ops.differentiate("Gemm", of_gemm);
  ops.differentiate("plait.Linear", of_linear);
  ops.differentiate("plait.Dropout", of_dropout);
  ops.differentiate("plait.Embedding", of_embedding);
  ops.differentiate("plait.GatherRows", of_gather_rows);
}

}  // namespace plait
