// MatMul and Gemm of f32: products of activations, and of weights in other layouts than plait.Linear's. The
// arithmetic is in matmul_tile.cpp, with the same bits in gemm_tile.cpp for many rows, and in panel_tile.cpp for a
// transposed right side.
#include <cstring>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/packed.h"
#include "kernels/cpu/linear/linear_tile.h"
#include "kernels/cpu/linear/matmul_tile.h"
#include "kernels/cpu/linear/packed_tile.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// One product y [m, n] = a [m, k] b, b [k, n] or, transposed, [n, k].
struct Product {
  const float *a, *b;
  float* y;
  int64_t m, n, k;
  bool transposed = false;
};

/// Rows of the left side in an item; a multiple of every tile's rows.
constexpr int64_t item_rows = 96;

/// Many rows of one product are packed.
bool packs(int64_t count, int64_t m, bool transposed) { return count == 1 && m >= gemm_from_rows && !transposed; }

/// Rows that are not worth packing: dot products with rows of b have the bits of packed panels.
constexpr int64_t most_dot_rows = 4;

/// Scratch of an item's product: a panel of b, or b and the item's rows of a as panel_tile.cpp packs them.
int64_t worker_scratch(Isa isa, int64_t k, bool transposed) {
  if (!transposed) return align(4 * matmul_panel);
  return align(4 * panel_tiles(isa).scratch(item_rows, matmul_columns, k)) +
         align(panel_tiles(isa).bytes(item_rows, k));
}

template <Isa isa>
void run_transposed(const Product& p, int64_t i, int64_t rows, int64_t j, int64_t columns, float* scratch) {
  if (rows <= most_dot_rows)
    return linear_tiles(isa).block({p.a + i * p.k, p.k, rows, reinterpret_cast<const uint8_t*>(p.b + j * p.k),
                                    DType::f32, columns, p.k, p.y + i * p.n + j, p.n});
  const PackedTiles& tiles = panel_tiles(isa);
  std::byte* packed =
      reinterpret_cast<std::byte*>(scratch) + align(4 * tiles.scratch(item_rows, matmul_columns, p.k));
  const int64_t group = tiles.group(rows);
  for (int64_t index = 0; index * group < rows; ++index) tiles.pack(p.a + i * p.k, rows, p.k, index, packed);
  tiles.block({packed, group, 0, rows, reinterpret_cast<const uint8_t*>(p.b + j * p.k), DType::f32, columns, p.k,
               p.y + i * p.n + j, p.n, scratch, nullptr});
}

/// Of `count` products.
int64_t scratch_of(Isa isa, int64_t count, int64_t m, int64_t k, bool transposed, int threads) {
  if (packs(count, m, transposed)) return GemmWorkspace(f32_gemm_tiles(isa), m, k).bytes(threads);
  return threads * worker_scratch(isa, k, transposed);
}

/// Calls product(i) for i < count, split into blocks and distributed.
template <Isa isa, class Make>
void run_products(const KernelCall& call, std::byte* scratch, int64_t count, Make product) {
  if (count == 0) return;
  const Product shape = product(int64_t{0});
  if (packs(count, shape.m, shape.transposed))
    return run_gemm(call.pool, f32_gemm_tiles(isa),
                    {{shape.a, shape.k, false},
                     {reinterpret_cast<const uint8_t*>(shape.b), DType::f32, shape.n},
                     shape.m,
                     shape.n,
                     shape.k,
                     shape.y,
                     shape.n},
                    scratch);
  const int64_t stride = worker_scratch(isa, shape.k, shape.transposed);
  const int64_t across = (shape.n + matmul_columns - 1) / matmul_columns,
                down = (shape.m + item_rows - 1) / item_rows;
  // Several multiplications are one step of least_shared_work.
  share(call.pool, count * across * down, count * shape.m * shape.n * shape.k / 8, [&](int64_t item, int worker) {
    const Product p = product(item / (across * down));
    const int64_t j = item % across * matmul_columns, i = item / across % down * item_rows;
    const int64_t rows = std::min(item_rows, p.m - i), columns = std::min(matmul_columns, p.n - j);
    auto* own = reinterpret_cast<float*>(scratch + worker * stride);
    if (p.transposed) run_transposed<isa>(p, i, rows, j, columns, own);
    else matmul_tiles(isa).block({p.a + i * p.k, p.k, rows, p.b + j, p.n, columns, p.k, p.y + i * p.n + j, p.n, own});
  });
}

bool accepts_matmul(const NodeInfo& node) { return is_f32(node, 0) && is_f32(node, 1); }

/// The leading dimensions of one operand: its offset for each batch element of the output.
struct Batch {
  Shape sizes;                          ///< of the output
  int64_t steps[Shape::max_rank] = {};  ///< matrices; 0 if the operand is broadcast

  Batch(const Shape& output, const Shape& operand) : sizes(output) {
    int64_t step = 1;
    for (int i = 1; i <= output.rank(); ++i) {
      int64_t size = i <= operand.rank() ? operand.back(i) : 1;
      steps[output.rank() - i] = size == 1 ? 0 : step;
      step *= size;
    }
  }
  int64_t at(int64_t index) const {
    int64_t out = 0;
    for (int axis = sizes.rank() - 1; axis >= 0; --axis) {
      out += index % sizes[axis] * steps[axis];
      index /= sizes[axis];
    }
    return out;
  }
};

Shape leading(const Shape& shape, int count) {
  return Shape(std::span(shape.begin(), static_cast<size_t>(std::max(count, 0))));
}

/// The split of a MatMul into products of one size: a [..., m, k] x b [..., k, n] -> [..., m, n]; a of rank 1 is a
/// row, b of rank 1 a column. With one right side all rows are one matrix.
struct MatmulPlan {
  MatmulPlan(const TensorView& a, const TensorView& b, const TensorView& y)
      : m(a.shape.rank() > 1 ? a.shape.back(2) : 1),
        n(b.shape.rank() > 1 ? b.shape.back(1) : 1),
        k(a.shape.back(1)),
        a_batch(leading(a.shape, a.shape.rank() - 2)),
        b_batch(leading(b.shape, b.shape.rank() - 2)),
        batch(leading(y.shape, y.shape.rank() - (a.shape.rank() > 1 ? 1 : 0) - (b.shape.rank() > 1 ? 1 : 0))) {
    if (b_batch.elements() != 1 || a_batch.elements() != batch.elements()) return;
    m *= batch.elements();
    batch = a_batch = b_batch = {};
  }
  int64_t m, n, k;
  Shape a_batch, b_batch, batch;
};

struct MatmulState : KernelState {
  bool packed = false;  ///< the right side: a weight
};
bool is_packed(const NodeInfo& node) { return node.inputs[1].constant && node.inputs[1].rank == 2; }
std::shared_ptr<const KernelState> prepare_matmul(const NodeInfo& node) {
  auto state = std::make_shared<MatmulState>();
  state->packed = is_packed(node);
  return state;
}

/// A weight [k, n] as panels of columns.
template <Isa isa>
Tensor pack_right_side(const Tensor& plain, ThreadPool* pool) {
  const GemmTiles& tiles = f32_gemm_tiles(isa);
  const int64_t k = plain.shape()[0], n = plain.shape()[1], columns = tiles.columns;
  auto blob = make_blob(std::max(tiles.right_bytes(n, k), plain.bytes()));
  auto pack = [&](int64_t panel, int) {
    const float* from = plain.as<float>() + panel * columns;
    tiles.pack_right({reinterpret_cast<const uint8_t*>(from), DType::f32, n}, std::min(columns, n - panel * columns), k,
                     blob->mutable_data() + panel * columns * k * 4);
  };
  const int64_t panels = (n + columns - 1) / columns;
  if (pool) share(*pool, panels, n * k, pack);
  else
    for (int64_t panel = 0; panel < panels; ++panel) pack(panel, 0);
  return Tensor(plain.dtype(), plain.shape(), blob);
}
template <Isa isa>
const PackedLayout* pack_matmul(const NodeInfo& node, size_t operand) {
  static constexpr PackedLayout panels{isa == Isa::avx2 ? "product panels of 16" : "product panels of 32",
                                       pack_right_side<isa>};
  return operand == 1 && is_packed(node) ? &panels : nullptr;
}

template <Isa isa>
int64_t matmul_scratch(const KernelState* state, std::span<const TensorView> inputs,
                       std::span<const TensorView> outputs, int threads) {
  const MatmulPlan plan(inputs[0], inputs[1], outputs[0]);
  if (static_cast<const MatmulState*>(state)->packed)
    return threads * PackedPlan(f32_gemm_tiles(isa), plan.m, plan.n, plan.k, threads).worker_bytes();
  return scratch_of(isa, plan.batch.elements(), plan.m, plan.k, false, threads);
}

template <Isa isa>
KernelStatus run_matmul(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const MatmulPlan plan(a, b, y);
  const int64_t m = plan.m, n = plan.n, k = plan.k;
  if (static_cast<const MatmulState*>(call.state)->packed) {
    const GemmTiles& tiles = f32_gemm_tiles(isa);
    const PackedPlan sizes(tiles, m, n, k, call.pool.size());
    run_packed(
        call.pool, tiles, sizes,
        {.weights = b.data,
         .begin = 0,
         .end = n,
         .y = y.as<float>(),
         .ldy = n,
         .rows = reads_rows(k, k) ? a.as<float>() : nullptr,
         .pitch = k},
        call.scratch.data(), sizes.worker_bytes(),
        [&](int64_t first, int64_t count, int64_t k0, int64_t k1, float* to) {
          const float* rows[16];
          for (int64_t i = 0; i < count; ++i) rows[i] = a.as<float>() + (first + i) * k + k0;
          tiles.pack_rows(rows, count, k1 - k0, to);
        },
        [](int64_t, int64_t, int64_t, int64_t, std::byte*) {});
    return {};
  }
  const Batch a_at(plan.batch, plan.a_batch), b_at(plan.batch, plan.b_batch);
  run_products<isa>(call, call.scratch.data(), plan.batch.elements(), [&](int64_t i) {
    return Product{
        a.as<float>() + a_at.at(i) * m * k, b.as<float>() + b_at.at(i) * k * n, y.as<float>() + i * m * n, m, n, k};
  });
  return {};
}

/// to [m, k] = transpose of from [k, m], by squares whose cache lines are touched once.
void transpose(ThreadPool& pool, const float* from, int64_t k, int64_t m, float* to) {
  constexpr int64_t square = 16;
  share_ranges(pool, m, square, k, [&](int64_t begin, int64_t end, int) {
    for (int64_t j0 = 0; j0 < k; j0 += square)
      for (int64_t i0 = begin; i0 < end; i0 += square)
        for (int64_t i = i0; i < std::min(end, i0 + square); ++i)
          for (int64_t j = j0; j < std::min(k, j0 + square); ++j) to[i * k + j] = from[j * m + i];
  });
}

struct GemmState : KernelState {
  float alpha = 1, beta = 1;
  bool a_transposed = false, b_transposed = false;
};

std::shared_ptr<const KernelState> prepare_gemm(const NodeInfo& node) {
  auto state = std::make_shared<GemmState>();
  state->alpha = static_cast<float>(node.attributes.real("alpha", 1));
  state->beta = static_cast<float>(node.attributes.real("beta", 1));
  state->a_transposed = node.attributes.integer("transA", 0) != 0;
  state->b_transposed = node.attributes.integer("transB", 0) != 0;
  return state;
}

bool accepts_gemm(const NodeInfo& node) {
  return accepts_matmul(node) &&
         (node.inputs.size() < 3 || node.inputs[2].dtype == DType::none || node.inputs[2].dtype == DType::f32);
}

template <Isa isa>
int64_t gemm_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const auto& gemm = *static_cast<const GemmState*>(state);
  const Shape& a = inputs[0].shape;
  const int64_t m = a[gemm.a_transposed ? 1 : 0], k = a[gemm.a_transposed ? 0 : 1];
  return (gemm.a_transposed ? align(4 * a.elements()) : 0) + scratch_of(isa, 1, m, k, gemm.b_transposed, threads);
}

/// y = alpha a' b' + beta c, where c broadcasts over rows or columns.
template <Isa isa>
KernelStatus run_gemm(const KernelCall& call) {
  const auto& gemm = *static_cast<const GemmState*>(call.state);
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const int64_t m = y.shape[0], n = y.shape[1], k = a.shape[gemm.a_transposed ? 0 : 1];
  std::byte* scratch = call.scratch.data();
  const float* left = a.as<float>();
  if (gemm.a_transposed) {
    auto* transposed = reinterpret_cast<float*>(scratch);
    transpose(call.pool, left, k, m, transposed);
    left = transposed;
    scratch += align(4 * m * k);
  }
  run_products<isa>(call, scratch, 1,
                    [&](int64_t) { return Product{left, b.as<float>(), y.as<float>(), m, n, k, gemm.b_transposed}; });
  const TensorView* c =
      call.inputs.size() > 2 && call.inputs[2].present() && gemm.beta != 0 ? &call.inputs[2] : nullptr;
  if (!c && gemm.alpha == 1) return {};
  const int64_t c_columns = c && c->shape.rank() > 0 ? c->shape.back(1) : 1;
  const int64_t c_rows = c && c->shape.rank() > 1 ? c->shape.back(2) : 1;
  share_ranges(call.pool, m, 1, n, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float& out = y.as<float>()[i * n + j];
        out *= gemm.alpha;
        if (c) out += gemm.beta * c->as<float>()[(c_rows == 1 ? 0 : i) * c_columns + (c_columns == 1 ? 0 : j)];
      }
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "MatMul",
              .dtypes = "f32",
              .accepts = accepts_matmul,
              .prepare = prepare_matmul,
              .scratch_bytes = matmul_scratch<isa>,
              .run = run_matmul<isa>,
              .pack = pack_matmul<isa>});
  add_kernel(table, isa,
             {.op = "Gemm",
              .dtypes = "f32",
              .accepts = accepts_gemm,
              .prepare = prepare_gemm,
              .scratch_bytes = gemm_scratch<isa>,
              .run = run_gemm<isa>});
}

}  // namespace

void add_matmul(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
