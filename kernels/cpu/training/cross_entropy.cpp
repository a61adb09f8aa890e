// plait.HeadStatistics and plait.HeadBack: a head and the loss after it by blocks of the vocabulary, so that only one
// block's logits are in memory. Products are those of Linear and MatMul.
#include <cmath>

#include "kernels/cpu/training/lm_head.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/matmul_tile.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// Rows of w in a block, and tokens at a time: a block of logits is 256 KB, and w's rows of a block stay in the cache
/// while all tokens use them.
constexpr int64_t block_columns = 256, block_rows = 256;

/// Scratch: x packed, for all; then per worker product scratch, a block of logits, rows of a quantised w, and `own`
/// bytes.
struct Workspace {
  Workspace(Isa isa, const HeadCall& call, int64_t own)
      : unpacked(call.weight.is_blocked ? align(4 * block_columns * call.k) : 0),
        unpacker(call.weight.is_blocked ? call.unpacker(isa).bytes() : 0),
        own(align(own)) {
    packed = packs_x(isa, call.m) ? align(packed_tiles(isa).bytes(call.m, call.k)) : 0;
    block = packed ? align(4 * packed_tiles(isa).scratch(call.m, block_columns, call.k)) : 0;
  }
  int64_t logits() const { return align(4 * block_rows * block_columns); }
  int64_t worker() const { return block + logits() + unpacked + unpacker + own; }
  int64_t bytes(int threads) const { return packed + worker() * threads; }
  int64_t packed, block, unpacked, unpacker, own;
};

/// Products of blocks: x w^T.
template <Isa isa>
class Products {
 public:
  Products(const KernelCall& call, const HeadCall& of, const Workspace& workspace)
      : of_(of),
        workspace_(workspace),
        scratch_(call.scratch.data()),
        threads_(call.pool.size()),
        group_(packed_tiles(isa).group(of.m)) {
    if (!workspace.packed) return;
    share(call.pool, (of.m + group_ - 1) / group_, of.m * of.k,
          [&](int64_t index, int) { packed_tiles(isa).pack(of.x, of.m, of.k, index, scratch_); });
  }

  std::byte* own(int worker) const {
    return worker_at(worker) + workspace_.block + workspace_.logits() + workspace_.unpacked + workspace_.unpacker;
  }
  /// Rows [j, j + columns) of w, the first of a block, as operands of products: those of a quantised one as floats,
  /// in the worker's scratch until the next call.
  Weight rows(int worker, int64_t j, int64_t columns) const {
    if (!of_.weight.is_blocked)
      return {of_.weight.data + j * of_.k * dtype_bits(of_.w.dtype) / 8, of_.w.dtype, columns, false, {}};
    std::byte* to = worker_at(worker) + workspace_.block + workspace_.logits();
    of_.unpacker(isa).unpack(j, columns, reinterpret_cast<float*>(to), to + workspace_.unpacked);
    return {reinterpret_cast<const uint8_t*>(to), DType::f32, columns, false, {}};
  }
  /// Tokens [i, i + rows) with these rows of w: [rows, columns], in the worker's scratch until the next call.
  float* make(int worker, int64_t i, int64_t rows, const Weight& weight) const {
    std::byte* block = worker_at(worker);
    auto* y = reinterpret_cast<float*>(block + workspace_.block);
    run_block<isa>({of_.x, of_.k, workspace_.packed ? scratch_ : nullptr, group_, reinterpret_cast<float*>(block),
                    nullptr, nullptr, threads_},
                   weight, i, rows, 0, weight.n, y, weight.n, nullptr);
    return y;
  }
  /// Tokens at a time: whole groups of packed ones, which have at most 64.
  int64_t rows_at_once() const { return block_rows / group_ * group_; }

 private:
  std::byte* worker_at(int worker) const { return scratch_ + workspace_.packed + worker * workspace_.worker(); }

  const HeadCall& of_;
  const Workspace& workspace_;
  std::byte* scratch_;
  const int threads_;
  const int64_t group_;
};

template <Isa isa>
int64_t statistics_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                           int threads) {
  return Workspace(isa, HeadCall(*static_cast<const HeadState*>(state), inputs, 3), 0).bytes(threads);
}

/// x [..., k], w [v, k], labels [...], bias? [v] -> maxima [..., c], sums [..., c], picked [...].
template <Isa isa>
KernelStatus run_statistics(const KernelCall& call) {
  const HeadCall of(*static_cast<const HeadState*>(call.state), call.inputs, 3);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  float *maxima = call.outputs[0].as<float>(), *sums = call.outputs[1].as<float>(),
        *picked = call.outputs[2].as<float>();
  for (int64_t i = 0; i < of.m; ++i)
    if (of.place(i) < 0) picked[i] = 0;
  const Workspace workspace(isa, of, 0);
  const Products<isa> products(call, of, workspace);
  const LossLoops& loops = loss_loops(loops_of(isa));
  const int64_t chunks = of.state.chunks, at_once = products.rows_at_once(), groups = (of.m + at_once - 1) / at_once;
  share(call.pool, chunks * groups, of.m * of.v * of.k, [&](int64_t item, int worker) {
    const int64_t c = item / groups, begin = item % groups * at_once, rows = std::min(at_once, of.m - begin);
    for (int64_t i = begin; i < begin + rows; ++i) maxima[i * chunks + c] = -HUGE_VALF, sums[i * chunks + c] = 0;
    for (int64_t j = c * of.chunk; j < (c + 1) * of.chunk; j += block_columns) {
      const int64_t columns = std::min(block_columns, (c + 1) * of.chunk - j);
      float* logits = products.make(worker, begin, rows, products.rows(worker, j, columns));
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = (begin + i) * chunks + c, label = of.place(begin + i) - j;
        loops.to_logits(logits + i * columns, of.bias_from(j), columns, of.state.scale);
        loops.take_in(logits + i * columns, columns, maxima[at], sums[at]);
        if (of.place(begin + i) >= 0 && label >= 0 && label < columns)
          picked[begin + i] = logits[i * columns + label];
      }
    }
  });
  return {};
}

/// A worker's scratch in HeadBack: its part of dx, a transposed block of gradients, a block of w in f32, and a panel.
struct BackWorkspace {
  explicit BackWorkspace(const HeadCall& call)
      : dx(align(4 * call.m * call.k)),
        transposed(align(4 * block_rows * block_columns)),
        widened(call.w.dtype == DType::f32 || call.weight.is_blocked ? 0 : align(4 * block_columns * call.k)) {}
  int64_t bytes() const { return dx + transposed + widened + align(4 * matmul_panel); }
  int64_t dx, transposed, widened;
};

template <Isa isa>
int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const HeadCall of(*static_cast<const HeadState*>(state), inputs, 5);
  return Workspace(isa, of, BackWorkspace(of).bytes()).bytes(threads);
}

/// Converts a token's logits of rows [j, j + columns) of w to gradients of the products.
void change_row(const HeadCall& of, const LossLoops& loops, int64_t token, int64_t j, int64_t columns, float sum,
                float dloss, float* row) {
  const int64_t label = of.place(token) - j;
  const bool here = of.place(token) >= 0 && label >= 0 && label < columns;
  const LogitScale& scale = of.state.scale;
  const float part = here && scale.cap != 0 ? row[label] / scale.cap : 0;
  loops.changes(row, columns, scale, sum, dloss);
  if (here) row[label] -= dloss * scale.scale * (1 - part * part);
}

/// x, w, labels, logsumexp [...], dloss [...], bias? -> dx [..., k], dw? [v, k], dbias? [v].
template <Isa isa>
KernelStatus run_back(const KernelCall& call) {
  constexpr Isa products_isa = loops_of(isa);
  const HeadCall of(*static_cast<const HeadState*>(call.state), call.inputs, 5);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  const float *sums = call.inputs[3].as<float>(), *dloss = call.inputs[4].as<float>();
  float* dx = call.outputs[0].as<float>();
  float *dw = gradient(call.outputs, 1), *dbias = gradient(call.outputs, 2);
  const BackWorkspace back(of);
  const Workspace workspace(isa, of, back.bytes());
  const Products<isa> products(call, of, workspace);
  const int threads = call.pool.size();
  for (int worker = 0; worker < threads; ++worker) std::memset(products.own(worker), 0, static_cast<size_t>(back.dx));
  const LossLoops& loops = loss_loops(products_isa);
  const ElementwiseLoops& element = elementwise_loops(products_isa);
  const int64_t at_once = products.rows_at_once();
  // The blocks of each part of dx are fixed, so that the bits do not depend on thread timing.
  const int64_t blocks = (of.v + block_columns - 1) / block_columns;
  auto run_block_at = [&](int64_t j, int part, int worker) {
    const int64_t columns = std::min(block_columns, of.v - j);
    std::byte* own = products.own(part);
    auto* own_dx = reinterpret_cast<float*>(own);
    auto* transposed = reinterpret_cast<float*>(own + back.dx);
    auto* widened = reinterpret_cast<float*>(own + back.dx + back.transposed);
    auto* panel = reinterpret_cast<float*>(own + back.dx + back.transposed + back.widened);
    const Weight rows_of_w = products.rows(worker, j, columns);
    const float* w = widened;
    if (rows_of_w.dtype == DType::f32) w = reinterpret_cast<const float*>(rows_of_w.data);
    else if (rows_of_w.dtype == DType::bf16) element.widen_bf16(rows_of_w.data, widened, columns * of.k);
    else element.widen_f16(rows_of_w.data, widened, columns * of.k);
    if (dbias) std::memset(dbias + j, 0, static_cast<size_t>(4 * columns));
    for (int64_t begin = 0; begin < of.m; begin += at_once) {
      const int64_t rows = std::min(at_once, of.m - begin);
      float* changes = products.make(worker, begin, rows, rows_of_w);
      for (int64_t i = 0; i < rows; ++i) {
        loops.to_logits(changes + i * columns, of.bias_from(j), columns, of.state.scale);
        change_row(of, loops, begin + i, j, columns, sums[begin + i], dloss[begin + i], changes + i * columns);
      }
      multiply(products_isa,
               {changes, columns, rows, w, of.k, of.k, columns, own_dx + begin * of.k, of.k, panel, true});
      if (dbias) add_rows(element, changes, columns, rows, columns, dbias + j);
      if (!dw) continue;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t c = 0; c < columns; ++c) transposed[c * rows + i] = changes[i * columns + c];
      multiply(products_isa, {transposed, rows, columns, of.x + begin * of.k, of.k, of.k, rows, dw + j * of.k, of.k,
                              panel, begin > 0});
    }
    if (dw && of.m == 0) std::memset(dw + j * of.k, 0, static_cast<size_t>(4 * columns * of.k));
  };
  share(call.pool, threads, of.m * of.v * of.k, [&](int64_t part, int worker) {
    for (int64_t block = blocks * part / threads; block < blocks * (part + 1) / threads; ++block)
      run_block_at(block * block_columns, static_cast<int>(part), worker);
  });
  const auto add = element.binary[static_cast<int>(Binary::add)];
  share_ranges(call.pool, of.m * of.k, 16, threads, [&](int64_t begin, int64_t end, int) {
    const auto part = [&](int worker) { return reinterpret_cast<const float*>(products.own(worker)) + begin; };
    std::memcpy(dx + begin, part(0), static_cast<size_t>(4 * (end - begin)));
    for (int worker = 1; worker < threads; ++worker) add(dx + begin, 1, part(worker), 1, dx + begin, end - begin);
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.HeadStatistics",
              .dtypes = "f32 x f32|bf16|f16|2 to 8 bits",
              .accepts = accepts_head<3>,
              .prepare = prepare_head,
              .scratch_bytes = statistics_scratch<isa>,
              .run = run_statistics<isa>});
  add_kernel(table, isa,
             {.op = "plait.HeadBack",
              .dtypes = "f32 x f32|bf16|f16|2 to 8 bits",
              .accepts = accepts_head<5>,
              .prepare = prepare_head,
              .scratch_bytes = back_scratch<isa>,
              .run = run_back<isa>});
}

}  // namespace

void add_cross_entropy(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
