// MatMul, com.microsoft.FusedMatMul, Gemm and MatMulInteger.
#include <algorithm>
#include <utility>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

/// The operands of a MatMul as batches of matrices [m, k] and [k, n]: a 1-D left operand is a row, a 1-D right one a
/// column, and the leading dimensions broadcast.
struct Batches {
  Batches(const Shape& a, const Shape& b) {
    m = a.rank() > 1 ? a.back(2) : 1;
    k = a.back(1);
    n = b.rank() > 1 ? b.back(1) : 1;
    Shape left = leading(a), right = leading(b), sizes = left.rank() >= right.rank() ? left : right;
    const Shape& other = left.rank() >= right.rank() ? right : left;
    for (int i = 1; i <= other.rank(); ++i)
      if (int64_t& size = sizes[sizes.rank() - i]; size == 1) size = other.back(i);
    a_offsets = offsets_of(sizes, broadcast_strides(left, sizes));
    b_offsets = offsets_of(sizes, broadcast_strides(right, sizes));
  }
  static Shape leading(const Shape& shape) {
    Shape out;
    for (int i = 0; i + 2 < shape.rank(); ++i) out.push_back(shape[i]);
    return out;
  }
  int64_t m, n, k;
  std::vector<int64_t> a_offsets, b_offsets;  ///< which matrix of each operand, in order of the outputs
};

template <class N>
void matmul_values(const Batches& batches, const N* a, const N* b, const TensorView& out, ThreadPool& pool) {
  int64_t m = batches.m, n = batches.n, k = batches.k;
  std::vector<N> product(static_cast<size_t>(m * n));
  for (size_t i = 0; i < batches.a_offsets.size(); ++i) {
    multiply(m, n, k, a + batches.a_offsets[i] * m * k, b + batches.b_offsets[i] * k * n, product.data(), pool);
    store(out, static_cast<int64_t>(i) * m * n, m * n, product.data());
  }
}

KernelStatus matmul(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  with_accumulator(a.dtype, [&]<class N>(N) {
    Loaded<N> left(a), right(b);
    matmul_values(Batches(a.shape, b.shape), left.data(), right.data(), out, call.pool);
  });
  return {};
}

struct FusedAttributes {
  explicit FusedAttributes(const NodeInfo& node) : alpha(node.attributes.real("alpha", 1)) {
    constexpr const char* names[2][2] = {{"transA", "transBatchA"}, {"transB", "transBatchB"}};
    for (int side = 0; side < 2; ++side) {
      transposed[side] = node.attributes.integer(names[side][0], 0) != 0;
      batch_inside[side] = node.attributes.integer(names[side][1], 0) != 0;
    }
  }
  double alpha;
  bool transposed[2], batch_inside[2];
};

/// An operand of FusedMatMul in MatMul's order: with `batch_inside` the first dimension moves after the leading ones,
/// then with `transposed` the last two are swapped. A vector is unchanged.
template <class N>
std::pair<std::vector<N>, Shape> matmul_order(const TensorView& x, bool batch_inside, bool transposed) {
  Shape shape = x.shape, strides = strides_of(x.shape);
  int rank = shape.rank();
  auto exchange = [&](int a, int b) { std::swap(shape[a], shape[b]), std::swap(strides[a], strides[b]); };
  if (batch_inside)
    for (int i = 0; i + 2 < rank; ++i) exchange(i, i + 1);
  if (transposed && rank > 1) exchange(rank - 2, rank - 1);
  Loaded<N> values(x);
  std::vector<N> out;
  out.reserve(static_cast<size_t>(x.elements()));
  for (int64_t at : offsets_of(shape, strides)) out.push_back(values[at]);
  return {std::move(out), shape};
}

KernelStatus fused_matmul(const KernelCall& call, const FusedAttributes& a) {
  const TensorView& out = call.outputs[0];
  with_accumulator(call.inputs[0].dtype, [&]<class N>(N) {
    auto [left, left_shape] = matmul_order<N>(call.inputs[0], a.batch_inside[0], a.transposed[0]);
    auto [right, right_shape] = matmul_order<N>(call.inputs[1], a.batch_inside[1], a.transposed[1]);
    for (N& value : left) value = static_cast<N>(static_cast<N>(a.alpha) * value);
    matmul_values(Batches(left_shape, right_shape), left.data(), right.data(), out, call.pool);
  });
  return {};
}

/// The elements minus their zero point: absent, one for all, or one for each row (`per_row`) or column of the
/// matrices.
std::vector<uint64_t> shifted(const TensorView& tensor, const TensorView& zero, bool per_row) {
  std::vector<uint64_t> values = load_all<uint64_t>(tensor);
  if (!zero.present()) return values;
  std::vector<uint64_t> zeros = load_all<uint64_t>(zero);
  int64_t columns = tensor.shape.back(1), rows = tensor.shape.rank() > 1 ? tensor.shape.back(2) : 1;
  // Batched zero points have one for each row (or column) of each matrix.
  bool batched = zero.elements() > (per_row ? rows : columns);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    int64_t line = per_row ? i / columns : batched ? i / (rows * columns) * columns + i % columns : i % columns;
    if (per_row && !batched) line %= rows;
    values[static_cast<size_t>(i)] -= zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(line)];
  }
  return values;
}

/// MatMulInteger: a, b (u8 or i8), a_zero?, b_zero? -> i32.
KernelStatus matmul_integer(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1];
  std::vector<uint64_t> left = shifted(a, input(call, 2), true), right = shifted(b, input(call, 3), false);
  matmul_values(Batches(a.shape, b.shape), left.data(), right.data(), call.outputs[0], call.pool);
  return {};
}

/// The scale of each row (or column) of the matrices: one for all, or one per line.
double line_scale(const TensorView& scale, int64_t line, int64_t lines) {
  return load_one<double>(scale, scale.elements() == 1 ? 0 : line % std::min(lines, scale.elements()));
}

/// QLinearMatMul: a, scale, zero point, b, scale, zero point, and those of y -> round(a b / scale) + zero point.
KernelStatus qlinear_matmul(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[3], &y = call.outputs[0];
  Batches batches(a.shape, b.shape);
  for (int32_t slot : {1, 4}) {  // one for all, or one per line: batched scales are not defined
    int64_t scales = call.inputs[static_cast<size_t>(slot)].elements();
    if (scales != 1 && scales != (slot == 1 ? batches.m : batches.n)) return {KernelCode::bad_value, slot, scales};
  }
  std::vector<uint64_t> left = shifted(a, call.inputs[2], true), right = shifted(b, call.inputs[5], false);
  std::vector<uint64_t> product(static_cast<size_t>(batches.m * batches.n));
  double y_scale = load_one<double>(call.inputs[6], 0), zero = load_one<double>(call.inputs[7], 0);
  double low = y.dtype == DType::i8 ? -128 : 0, high = low + 255;
  for (size_t i = 0; i < batches.a_offsets.size(); ++i) {
    multiply(batches.m, batches.n, batches.k, left.data() + batches.a_offsets[i] * batches.m * batches.k,
             right.data() + batches.b_offsets[i] * batches.k * batches.n, product.data(), call.pool);
    for (int64_t j = 0; j < batches.m * batches.n; ++j) {
      double scale = line_scale(call.inputs[1], j / batches.n, batches.m) *
                     line_scale(call.inputs[4], j % batches.n, batches.n) / y_scale;
      double value = static_cast<double>(static_cast<int64_t>(product[static_cast<size_t>(j)])) * scale;
      if (std::isnan(value)) return {KernelCode::not_a_number, 6, 0};
      store_one(y, static_cast<int64_t>(i) * batches.m * batches.n + j,
                std::clamp(std::nearbyint(value) + zero, low, high));
    }
  }
  return {};
}

struct GemmAttributes {
  explicit GemmAttributes(const NodeInfo& node)
      : alpha(node.attributes.real("alpha", 1)),
        beta(node.attributes.real("beta", 1)),
        transpose_a(node.attributes.integer("transA", 0) != 0),
        transpose_b(node.attributes.integer("transB", 0) != 0) {}
  double alpha, beta;
  bool transpose_a, transpose_b;
};

template <class N>
std::vector<N> transposed(const N* in, int64_t rows, int64_t columns) {
  std::vector<N> out(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out[static_cast<size_t>(j * rows + i)] = in[i * columns + j];
  return out;
}

/// Gemm: alpha a b + beta c; a [m, k] or transposed, b [k, n] or transposed, c? broadcast to [m, n].
KernelStatus gemm(const KernelCall& call, const GemmAttributes& attributes) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], c = input(call, 2), &out = call.outputs[0];
  int64_t m = out.shape[0], n = out.shape[1], k = a.shape[attributes.transpose_a ? 0 : 1];
  with_accumulator(a.dtype, [&]<class N>(N) {
    Loaded<N> left(a), right(b), addend(c.present() ? c : TensorView{nullptr, DType::f32, {0}});
    std::vector<N> left_rows = attributes.transpose_a ? transposed(left.data(), k, m) : std::vector<N>();
    const N* rows = attributes.transpose_a ? left_rows.data() : left.data();
    std::vector<N> product(static_cast<size_t>(m * n));
    if (attributes.transpose_b)
      share(call.pool, n, m * n * k, [&](int64_t j) {
        for (int64_t i = 0; i < m; ++i)
          product[static_cast<size_t>(i * n + j)] = dot(rows + i * k, right.data() + j * k, k);
      });
    else multiply(m, n, k, rows, right.data(), product.data(), call.pool);
    auto alpha = static_cast<N>(attributes.alpha), beta = static_cast<N>(attributes.beta);
    std::vector<int64_t> at;
    if (c.present()) at = offsets_of(out.shape, broadcast_strides(c.shape, out.shape));
    for (size_t i = 0; i < product.size(); ++i)
      product[i] = alpha * product[i] + (c.present() ? beta * addend[at[i]] : N{0});
    store_all(out, product);
  });
  return {};
}

}  // namespace

void add_matmul(KernelTable& table) {
  add<matmul>(table, "MatMul", numbers);
  add<fused_matmul>(table, "com.microsoft.FusedMatMul", floats);
  add<gemm>(table, "Gemm", numbers);
  add<matmul_integer>(table, "MatMulInteger", integers);
  add<qlinear_matmul>(table, "QLinearMatMul", integers);
}

}  // namespace plait::reference
