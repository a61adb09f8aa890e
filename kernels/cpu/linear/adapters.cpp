// plait.AddAdapters: two narrow products for each run of rows with one adapter. A request's tokens are contiguous, so
// no sorting is needed. The arithmetic is that of Linear, and so is batch invariance.
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

constexpr int64_t block_rows = 64;      ///< rows of x in an item
constexpr int64_t block_columns = 256;  ///< columns of y in an item: they and their part of b (r = 64) fit into L2

struct Operands {
  const TensorView &x, &a, &b, &adapters;
  int64_t t, k, r, n, slots;

  explicit Operands(std::span<const TensorView> inputs)
      : x(inputs[1]),
        a(inputs[2]),
        b(inputs[3]),
        adapters(inputs[4]),
        t(adapters.elements()),
        k(x.shape.back(1)),
        r(a.shape[1]),
        n(b.shape[1]),
        slots(a.shape[0]) {}
  int64_t adapter(int64_t row) const { return adapters.as<int32_t>()[row]; }
};

/// Scratch of a call: x a^T of all rows; then, per worker, packing and product scratch, and a block of y.
struct Scratch {
  int64_t low, packed, block, side;

  Scratch(Isa isa, const Operands& all) {
    const PackedTiles& tiles = panel_tiles(isa);
    // Packing rounds rows up to whole groups of 6 at least.
    constexpr int64_t rows = block_rows + block_rows / 4;
    low = align(4 * all.t * all.r);
    packed = align(std::max(tiles.bytes(rows, all.k), tiles.bytes(rows, all.r)));
    block = align(4 * std::max(tiles.scratch(block_rows, std::min(all.r, block_columns), all.k),
                               tiles.scratch(block_rows, block_columns, all.r)));
    side = align(4 * block_rows * block_columns);
  }
  int64_t own() const { return packed + block + side; }
  int64_t bytes(int threads) const { return low + own() * threads; }
};

/// y = x w^T for m <= block_rows rows of x. Packing them pays off if many columns read them, and sums are short; the
/// bits are the same.
template <Isa isa>
void multiply(const float* x, int64_t m, int64_t k, const float* w, int64_t n, float* y, int64_t ldy,
              const Scratch& scratch, std::byte* own) {
  const auto* weights = reinterpret_cast<const uint8_t*>(w);
  if (m <= few_rows(isa) || n < k) return linear_tiles(isa).block({x, k, m, weights, DType::f32, n, k, y, ldy});
  const PackedTiles& tiles = panel_tiles(isa);
  const int64_t group = tiles.group(m);
  for (int64_t i = 0; i * group < m; ++i) tiles.pack(x, m, k, i, own);
  tiles.block(
      {own, group, 0, m, weights, DType::f32, n, k, y, ldy, reinterpret_cast<float*>(own + scratch.packed), nullptr});
}

/// Calls task(begin, end, adapter, part, worker) for each run of rows with one adapter, split at multiples of
/// block_rows, and each of `parts`.
template <class Task>
void each_run(const KernelCall& call, const Operands& all, int64_t parts, int64_t work, Task task) {
  const int64_t blocks = (all.t + block_rows - 1) / block_rows;
  share(call.pool, blocks * parts, work, [&](int64_t item, int worker) {
    const int64_t first = item / parts * block_rows, last = std::min(all.t, first + block_rows);
    for (int64_t begin = first, end; begin < last; begin = end) {
      const int64_t adapter = all.adapter(begin);
      for (end = begin + 1; end < last && all.adapter(end) == adapter;) ++end;
      if (adapter >= 0) task(begin, end, adapter, item % parts, worker);
    }
  });
}

template <Isa isa>
KernelStatus add_products(const KernelCall& call, const Operands& all, float* y) {
  int64_t adapted = 0;
  for (int64_t row = 0; row < all.t; ++row) {
    const int64_t adapter = all.adapter(row);
    if (adapter < -1 || adapter >= all.slots) return {KernelCode::index_out_of_range, 4, adapter};
    adapted += adapter >= 0;
  }
  if (!adapted) return {};
  const Scratch scratch(isa, all);
  auto* low = reinterpret_cast<float*>(call.scratch.data());
  auto own = [&](int worker) { return call.scratch.data() + scratch.low + worker * scratch.own(); };
  const auto *x = all.x.as<float>(), *a = all.a.as<float>(), *b = all.b.as<float>();
  const int64_t ranks = (all.r + block_columns - 1) / block_columns;
  each_run(call, all, ranks, adapted * all.r * all.k,
           [&](int64_t begin, int64_t end, int64_t adapter, int64_t part, int worker) {
             const int64_t j = part * block_columns, columns = std::min(block_columns, all.r - j);
             multiply<isa>(x + begin * all.k, end - begin, all.k, a + (adapter * all.r + j) * all.k, columns,
                           low + begin * all.r + j, all.r, scratch, own(worker));
           });
  const auto add = elementwise_loops(isa).binary[static_cast<int>(Binary::add)];
  const int64_t parts = (all.n + block_columns - 1) / block_columns;
  each_run(call, all, parts, adapted * all.r * all.n,
           [&](int64_t begin, int64_t end, int64_t adapter, int64_t part, int worker) {
             const int64_t j = part * block_columns, columns = std::min(block_columns, all.n - j);
             auto* side = reinterpret_cast<float*>(own(worker) + scratch.packed + scratch.block);
             multiply<isa>(low + begin * all.r, end - begin, all.r, b + (adapter * all.n + j) * all.r, columns, side,
                           columns, scratch, own(worker));
             for (int64_t row = begin; row < end; ++row) {
               float* to = y + row * all.n + j;
               add(to, 1, side + (row - begin) * columns, 1, to, columns);
             }
           });
  return {};
}

template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const TensorView &from = call.inputs[0], &y = call.outputs[0];
  if (y.data != from.data) memcpy(y.data, from.data, static_cast<size_t>(from.bytes()));
  return add_products<isa>(call, Operands(call.inputs), y.as<float>());
}

template <Isa isa>
int64_t scratch_bytes(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  return Scratch(isa, Operands(inputs)).bytes(threads);
}

bool accepts(const NodeInfo& node) {
  const size_t last = node.inputs.size() - 1;
  for (size_t i = 0; i < last; ++i)
    if (node.inputs[i].dtype != DType::f32) return false;
  return node.inputs[last].dtype == DType::i32;
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.AddAdapters",
              .dtypes = "f32",
              .accepts = accepts,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run<isa>,
              .in_place = 0});
}

}  // namespace

void add_adapters(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
