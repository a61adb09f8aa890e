// MatMulInteger and QLinearMatMul.
#include "kernels/cpu/linear/integer_products.h"

#include <atomic>
#include <limits>

#include "kernels/cpu/linear/register.h"

namespace plait::cpu {
namespace {

bool is_matrices(const OperandInfo& one) { return one.rank >= 2 && is_code(one.dtype); }

bool accepts_matmul_integer(const NodeInfo& node) {
  return is_matrices(node.inputs[0]) && is_matrices(node.inputs[1]);
}

bool accepts_qlinear_matmul(const NodeInfo& node) {
  return is_matrices(node.inputs[0]) && is_matrices(node.inputs[3]) && is_code(node.outputs[0].dtype) &&
         is_f32(node, 1) && is_f32(node, 4) && is_f32(node, 6);
}

/// a [batch, m, k], b [batch, k, n], whose leading dims broadcast; one product of all rows where b has one matrix.
struct IntegerMatMul {
  IntegerMatMul(const TensorView& a, const TensorView& b, const TensorView& y)
      : a(a),
        b(b),
        m(a.shape.back(2)),
        n(b.shape.back(1)),
        k(a.shape.back(1)),
        count(y.shape.elements(0, y.shape.rank() - 2)) {
    if (b.elements() != k * n) return;
    m *= count;
    count = std::min<int64_t>(count, 1);
  }
  /// The matrix of `operand` that product i reads.
  int64_t matrix(const TensorView& operand, const Shape& y, int64_t i) const {
    int64_t at = 0, pitch = 1;
    for (int dim = y.rank() - 2; dim-- > 0; i /= y[dim]) {
      const int own = dim - (y.rank() - operand.shape.rank());
      if (own < 0) continue;
      if (operand.shape[own] > 1) at += i % y[dim] * pitch;
      pitch *= operand.shape[own];
    }
    return at;
  }
  const TensorView &a, &b;
  int64_t m, n, k, count;
};

template <Isa isa, size_t b_at>
int64_t integer_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
                        int threads) {
  const IntegerMatMul product(inputs[0], inputs[b_at], outputs[0]);
  return IntegerPlan(integer_tiles(isa), product.m, product.k).bytes(threads);
}

/// Whether the right side is packed: a weight.
struct IntegerMatMulState : KernelState {
  explicit IntegerMatMulState(bool packed) : packed(packed) {}
  bool packed;
};

template <size_t b_at>
bool is_packed(const NodeInfo& node) {
  return node.inputs[b_at].constant && node.inputs[b_at].rank == 2;
}
template <size_t b_at>
std::shared_ptr<const KernelState> prepare_integer_matmul(const NodeInfo& node) {
  return std::make_shared<IntegerMatMulState>(is_packed<b_at>(node));
}

/// [panels][steps + 1, columns] units of b [k, n].
template <Isa isa>
Tensor pack_integer_panels(const Tensor& plain, ThreadPool* pool) {
  const IntegerTiles& tiles = integer_tiles(isa);
  const int64_t k = plain.shape()[0], n = plain.shape()[1], panels = (n + tiles.columns - 1) / tiles.columns;
  const IntegerPlan plan(tiles, 0, k);
  auto blob = make_blob(std::max(panels * plan.panel_units * 4, plain.bytes()));
  auto* to = reinterpret_cast<int32_t*>(blob->mutable_data());
  const auto* codes = reinterpret_cast<const uint8_t*>(plain.data());
  auto pack = [&](int64_t panel, int) {
    std::vector<uint8_t> lines(static_cast<size_t>((tiles.depth + 1) * tiles.columns));
    const int64_t j0 = panel * tiles.columns, count = std::min(tiles.columns, n - j0);
    pack_right_panel(
        tiles, plan, k, plain.dtype() == DType::i8, true, lines.data(),
        [&](int64_t row, uint8_t* line) -> const uint8_t* {
          const uint8_t* from = codes + row * n + j0;
          return count == tiles.columns ? from : (std::copy_n(from, count, line), line);
        },
        to + panel * plan.panel_units);
  };
  if (pool) share(*pool, panels, n * k, pack);
  else
    for (int64_t panel = 0; panel < panels; ++panel) pack(panel, 0);
  return Tensor(plain.dtype(), plain.shape(), blob);
}

template <Isa isa, size_t b_at>
const PackedLayout* pack_integer_matmul(const NodeInfo& node, size_t operand) {
  static constexpr PackedLayout panels{isa == Isa::avx2          ? "integer panels of 16"
                                       : isa == Isa::avx512      ? "integer panels of 32"
                                       : isa == Isa::avx512_bf16 ? "integer panels of 32 x 4"
                                                                 : "integer panels of 32 x 64",
                                       pack_integer_panels<isa>};
  return operand == b_at && is_packed<b_at>(node) ? &panels : nullptr;
}

/// One zero point or scale for all, one for each line of every matrix, or one for each line of each.
struct Lines {
  Lines(const TensorView* tensor, int64_t lines, int64_t matrices)
      : single(!tensor || tensor->elements() == 1),
        each(!single && tensor->elements() == lines * matrices && matrices != 1),
        fits(single || each || tensor->elements() == lines) {}
  int64_t at(int64_t matrix, int64_t line, int64_t lines) const {
    return single ? 0 : (each ? matrix * lines : 0) + line;
  }
  bool single, each, fits;
};

const TensorView* given(const KernelCall& call, size_t k) {
  return k < call.inputs.size() && call.inputs[k].present() ? &call.inputs[k] : nullptr;
}

/// Calls finish(matrix of y, row, j0, count, sums) for the products of codes less their zero points.
template <Isa isa, class Finish>
KernelStatus multiply_codes(const KernelCall& call, size_t b_at, size_t a_zero_at, size_t b_zero_at, Finish finish) {
  const TensorView &a = call.inputs[0], &b = call.inputs[b_at];
  const Shape& y = call.outputs[0].shape;
  const IntegerMatMul n(a, b, call.outputs[0]);
  const int64_t rows = a.shape.back(2), a_matrices = a.shape.elements(0, a.shape.rank() - 2),
                b_matrices = b.shape.elements(0, b.shape.rank() - 2);
  const TensorView *a_zero = given(call, a_zero_at), *b_zero = given(call, b_zero_at);
  const Lines a_lines(a_zero, rows, a_matrices), b_lines(b_zero, n.n, b_matrices);
  if (!a_lines.fits) return {KernelCode::bad_value, static_cast<int32_t>(a_zero_at), a_zero->elements()};
  if (!b_lines.fits) return {KernelCode::bad_value, static_cast<int32_t>(b_zero_at), b_zero->elements()};
  const IntegerTiles& tiles = integer_tiles(isa);
  const IntegerPlan plan(tiles, n.m, n.k);
  auto codes = [](const TensorView& one) { return reinterpret_cast<const uint8_t*>(one.data); };
  auto* left = reinterpret_cast<int32_t*>(call.scratch.data());
  for (int64_t i = 0; i < n.count; ++i) {
    const int64_t of_a = n.matrix(a, y, i), of_b = n.matrix(b, y, i);
    share(call.pool, plan.row_tiles, n.m * n.k / 4, [&](int64_t tile, int) {
      pack_left_tile(
          tiles, plan, tile, n.m, n.k, a.dtype == DType::i8,
          [&](int64_t row) { return codes(a) + (of_a * rows + row) * n.k; }, left);
    });
    const IntegerProduct product{.m = n.m,
                                 .n = n.n,
                                 .k = n.k,
                                 .left = left,
                                 .right = static_cast<const IntegerMatMulState*>(call.state)->packed
                                              ? reinterpret_cast<const int32_t*>(b.data)
                                              : nullptr,
                                 .left_signed = a.dtype == DType::i8,
                                 .right_signed = b.dtype == DType::i8,
                                 .left_zeros = true,
                                 .scratch = call.scratch.data() + plan.left_bytes};
    run_integer_product(
        call.pool, tiles, product,
        [&](int64_t row) { return code_at(a_zero, a_lines.at(of_a + row / rows, row % rows, rows)); },
        [&](int64_t column) { return code_at(b_zero, b_lines.at(of_b, column, n.n)); },
        [&](int64_t row, int64_t j0, int64_t count, uint8_t* to) -> const uint8_t* {
          const uint8_t* from = codes(b) + (of_b * n.k + row) * n.n + j0;
          if (codes(b) + b.elements() - from >= tiles.columns) return from;
          return std::copy_n(from, count, to), to;
        },
        [&](int64_t first, int64_t made, int64_t j0, int64_t count, const auto* sums) {
          for (int64_t row = first; row < first + made; ++row, sums += tiles.columns)
            finish(row % rows, (i * n.m + row) * n.n + j0, j0, count, sums);
        });
  }
  return {};
}

template <Isa isa>
KernelStatus run_matmul_integer(const KernelCall& call) {
  return multiply_codes<isa>(call, 1, 2, 3, [&](int64_t, int64_t at, int64_t, int64_t count, const auto* sums) {
    for (int64_t j = 0; j < count; ++j) call.outputs[0].as<int32_t>()[at + j] = static_cast<int32_t>(sums[j]);
  });
}

/// Sums times scales, rounded to even, plus the zero point. False if one is NaN.
template <class Sum, class Code, class Scale>
bool store_quantized(const Sum* sums, int64_t count, Scale scale, double zero, Code* to) {
  constexpr double low = std::numeric_limits<Code>::min(), high = std::numeric_limits<Code>::max();
  constexpr double magic = 6755399441055744;  // 1.5 2^52: the sum has no fraction
  bool fine = true;
  for (int64_t j = 0; j < count; ++j) {
    const double value = static_cast<double>(sums[j]) * scale(j);
    fine = fine && value == value;
    const double held = value > -1024 ? value < 1024 ? value : 1024 : -1024;  // far beyond all codes
    const double rounded = (held + magic) - magic + zero;
    to[j] = static_cast<Code>(static_cast<int32_t>(rounded < low ? low : rounded > high ? high : rounded));
  }
  return fine;
}

template <Isa isa>
KernelStatus run_qlinear_matmul(const KernelCall& call) {
  const TensorView &a_scale = call.inputs[1], &b_scale = call.inputs[4], &y = call.outputs[0];
  const int64_t rows = call.inputs[0].shape.back(2), columns = call.inputs[3].shape.back(1);
  for (int32_t k : {1, 4})  // batched scales are not defined
    if (const int64_t scales = call.inputs[static_cast<size_t>(k)].elements();
        scales != 1 && scales != (k == 1 ? rows : columns))
      return {KernelCode::bad_value, k, scales};
  for (int32_t k : {6, 7})
    if (call.inputs[static_cast<size_t>(k)].elements() < 1) return {KernelCode::bad_value, k, 0};
  auto of = [](const TensorView& scale, int64_t line) -> double {
    return scale.as<float>()[scale.elements() == 1 ? 0 : line];
  };
  const double y_scale = *call.inputs[6].as<float>(), zero = code_at(&call.inputs[7], 0);
  std::atomic<bool> fine{true};
  const KernelStatus status =
      multiply_codes<isa>(call, 3, 2, 5, [&](int64_t row, int64_t at, int64_t j0, int64_t count, const auto* sums) {
        auto scale = [&](int64_t j) { return of(a_scale, row) * of(b_scale, j0 + j) / y_scale; };
        const bool own = y.dtype == DType::u8 ? store_quantized(sums, count, scale, zero, y.as<uint8_t>() + at)
                                              : store_quantized(sums, count, scale, zero, y.as<int8_t>() + at);
        if (!own) fine.store(false, std::memory_order_relaxed);
      });
  if (status.code == KernelCode::ok && !fine) return {KernelCode::not_a_number, 6, 0};
  return status;
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "MatMulInteger",
              .dtypes = "u8, i8",
              .accepts = accepts_matmul_integer,
              .prepare = prepare_integer_matmul<1>,
              .scratch_bytes = integer_scratch<isa, 1>,
              .run = run_matmul_integer<isa>,
              .pack = pack_integer_matmul<isa, 1>});
  add_kernel(table, isa,
             {.op = "QLinearMatMul",
              .dtypes = "u8, i8",
              .accepts = accepts_qlinear_matmul,
              .prepare = prepare_integer_matmul<3>,
              .scratch_bytes = integer_scratch<isa, 3>,
              .run = run_qlinear_matmul<isa>,
              .pack = pack_integer_matmul<isa, 3>});
}

}  // namespace

void add_integer_products(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu
