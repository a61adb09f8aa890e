// plait.HeadLoss: a head, its loss and their gradients, computing each product once. Products are packed, as for
// Linear in training.
//
// If w or the bias is trained, all logits of some rows are in memory, since the gradient needs their sums. Otherwise
// all rows meet w block by block, with sums relative to the largest logit so far: dx is rescaled when a larger one
// comes (as in online softmax, Milakov and Gimelshein 2018), and each row is divided by its sum at the end. Rows of a
// block of a quantised w are unpacked first.
#include <cmath>
#include <cstring>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/training/lm_head.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// Partial loss of a row from its logits so far.
struct RowLoss {
  float most = -HUGE_VALF, sum = 0;  ///< the largest, and the sum of e^(logit - most)
  float picked = 0;                  ///< the label's
};

/// Shared by both ways.
template <Isa isa>
class Head {
 public:
  Head(const KernelCall& call, const HeadCall& of)
      : call(call),
        of(of),
        k(of.k),
        w(of.w.as<const uint8_t>()),
        dloss(call.inputs[3].as<float>()),
        losses(call.outputs[0].as<float>()),
        dx(call.outputs[1].as<float>()) {}

  /// Converts products of a token with rows [j, j + columns) of w to e^(logit - most) d logit / d product.
  void weigh(int64_t token, int64_t j, int64_t columns, float* row, RowLoss& loss) const {
    const int64_t label = of.place(token) - j;
    loops.to_logits(row, of.bias_from(j), columns, of.state.scale);
    if (of.place(token) >= 0 && label >= 0 && label < columns) loss.picked = row[label];
    loops.weigh(row, columns, of.state.scale, loss.most, loss.sum);
  }
  void give_loss(int64_t token, const RowLoss& loss) const {
    losses[token] = loss.most + std::log(loss.sum) - loss.picked;
  }
  /// The label's own contribution to the loss's derivative.
  float label_slope(int64_t token, const RowLoss& loss) const {
    const LogitScale& scale = of.state.scale;
    const float part = scale.cap != 0 ? loss.picked / scale.cap : 0;
    return dloss[token] * scale.scale * (1 - part * part);
  }
  void multiply(float* row, float factor, int64_t n) const {
    element.binary[static_cast<int>(Binary::mul)](row, 1, &factor, 0, row, n);
  }
  GemmRight weight(bool transposed) const { return {w, of.w.dtype, k, transposed}; }

  const KernelCall& call;
  const HeadCall& of;
  const GemmTiles& tiles = gemm_tiles(isa);
  const LossLoops& loops = loss_loops(loops_of(isa));
  const ElementwiseLoops& element = elementwise_loops(loops_of(isa));
  const int64_t k;
  const uint8_t* const w;
  const float* const dloss;
  float *const losses, *const dx;
};

// ---- w or the bias is trained ----

/// All logits of a block of rows take about this many bytes, with enough rows to amortise reading w.
constexpr int64_t logits_bytes = 64 << 20;

/// Scratch: logits, and product scratch.
struct TrainedWorkspace {
  TrainedWorkspace(const GemmTiles& tiles, const HeadCall& of, int threads)
      : rows(std::min(of.m, std::clamp<int64_t>(logits_bytes / 4 / std::max<int64_t>(of.v, 1), 64, 512))),
        stride(of.v + 16),
        logits(align(4 * rows * stride)),
        products(std::max({GemmWorkspace(tiles, rows, of.k).bytes(threads),
                           GemmWorkspace(tiles, rows, of.v).bytes(threads),
                           GemmWorkspace(tiles, of.v, rows).bytes(threads)})) {}
  int64_t bytes() const { return logits + products; }
  int64_t rows;
  int64_t stride;  ///< of logits: not a power of 2, whose rows would share cache lines' sets
  int64_t logits, products;
};

template <Isa isa>
void run_trained(const Head<isa>& head, float* dw, float* dbias) {
  const HeadCall& of = head.of;
  ThreadPool& pool = head.call.pool;
  const int64_t k = of.k, v = of.v;
  const TrainedWorkspace workspace(head.tiles, of, pool.size());
  auto* logits = reinterpret_cast<float*>(head.call.scratch.data());
  std::byte* products = head.call.scratch.data() + workspace.logits;
  if (dw && of.m == 0) std::memset(dw, 0, static_cast<size_t>(4 * v * k));
  if (dbias) std::memset(dbias, 0, static_cast<size_t>(4 * v));
  for (int64_t begin = 0; begin < of.m; begin += workspace.rows) {
    const int64_t rows = std::min(workspace.rows, of.m - begin);
    const float* x = of.x + begin * k;
    run_gemm(pool, head.tiles, {{x, k, false}, head.weight(true), rows, v, k, logits, workspace.stride}, products);
    share_ranges(pool, rows, 1, 16 * v, [&](int64_t first, int64_t last, int) {
      for (int64_t i = first; i < last; ++i) {
        RowLoss loss;
        float* row = logits + i * workspace.stride;
        head.weigh(begin + i, 0, v, row, loss);
        head.give_loss(begin + i, loss);
        head.multiply(row, head.dloss[begin + i] / loss.sum, v);
        if (const int64_t label = of.place(begin + i); label >= 0) row[label] -= head.label_slope(begin + i, loss);
      }
    });
    run_gemm(pool, head.tiles,
             {{logits, workspace.stride, false}, head.weight(false), rows, k, v, head.dx + begin * k, k}, products);
    if (dw)
      run_gemm(pool, head.tiles,
               {{logits, workspace.stride, true},
                {reinterpret_cast<const uint8_t*>(x), DType::f32, k},
                v,
                k,
                rows,
                dw,
                k,
                begin > 0},
               products);
    if (dbias)
      share_ranges(pool, v, 16, rows, [&](int64_t first, int64_t last, int) {
        add_rows(head.element, logits + first, workspace.stride, rows, last - first, dbias + first);
      });
  }
}

// ---- neither is trained ----

/// Rows of w in a block; columns of a packed panel that a worker processes at a time, 64 x 2048 bf16 numbers being
/// 256 KB.
constexpr int64_t block_columns = 512, panel_columns = 64;

/// The split of rows, and the scratch: partial losses of rows, x, and both sides of a block of w, packed; per worker
/// logits of its part of the rows, these packed, and a row of w.
struct FrozenWorkspace {
  FrozenWorkspace(Isa isa, const GemmTiles& tiles, const HeadCall& of, int threads)
      : rows(std::min(of.m, gemm_rows)),
        columns(std::min(of.v, block_columns)),
        stride(columns + 16),
        tiles_of_rows((rows + tiles.rows - 1) / tiles.rows),
        parts(std::min<int64_t>(4 * threads, tiles_of_rows)),
        states(align(rows * static_cast<int64_t>(sizeof(RowLoss)))),
        x(align(tiles.left_bytes(rows, of.k))),
        transposed((columns + panel_columns - 1) / panel_columns * align(tiles.right_bytes(panel_columns, of.k))),
        plain((of.k + panel_columns - 1) / panel_columns * align(tiles.right_bytes(panel_columns, columns))) {
    const int64_t most = parts ? (tiles_of_rows + parts - 1) / parts * tiles.rows : 0;
    logits = align(4 * most * stride);
    packed = align(tiles.left_bytes(most, columns));
    row = align(4 * of.k);
    if (of.weight.is_blocked) unpacked = align(4 * columns * of.k), unpacker = of.unpacker(isa).bytes();
  }
  int64_t worker() const { return logits + packed + row + unpacker; }
  int64_t bytes(int threads) const { return states + x + transposed + plain + unpacked + worker() * threads; }
  int64_t rows, columns;
  int64_t stride;  ///< of logits: not a power of 2, whose rows would share cache lines' sets
  int64_t tiles_of_rows, parts;
  int64_t states, x, transposed, plain, unpacked = 0;
  int64_t logits, packed, row, unpacker = 0;
};

template <Isa isa>
class FrozenHead {
 public:
  explicit FrozenHead(const Head<isa>& head)
      : head_(head),
        of_(head.of),
        tiles_(head.tiles),
        pool_(head.call.pool),
        k_(of_.k),
        workspace_(isa, tiles_, of_, pool_.size()),
        states_(reinterpret_cast<RowLoss*>(head.call.scratch.data())),
        x_(head.call.scratch.data() + workspace_.states),
        transposed_(x_ + workspace_.x),
        plain_(transposed_ + workspace_.transposed),
        unpacked_(plain_ + workspace_.plain),
        own_(unpacked_ + workspace_.unpacked) {}

  void run() {
    for (int64_t begin = 0; begin < of_.m; begin += workspace_.rows)
      run_rows(begin, std::min(workspace_.rows, of_.m - begin));
  }

 private:
  int64_t tile_rows() const { return tiles_.rows; }
  /// A worker's, after its other scratch.
  std::byte* unpacker_workspace(int worker) const {
    return own_ + (worker + 1) * workspace_.worker() - workspace_.unpacker;
  }
  /// Contiguous packed panels.
  std::byte* transposed_at(int64_t j) const {
    return transposed_ + j / panel_columns * align(tiles_.right_bytes(panel_columns, k_));
  }
  std::byte* plain_at(int64_t j) const {
    return plain_ + j / panel_columns * align(tiles_.right_bytes(panel_columns, workspace_.columns));
  }

  void run_rows(int64_t begin, int64_t rows) {
    const int64_t tiles = (rows + tile_rows() - 1) / tile_rows(), parts = std::min(workspace_.parts, tiles);
    std::fill_n(states_, rows, RowLoss{});
    share(pool_, tiles, rows * k_, [&](int64_t tile, int) {
      const int64_t first = tile * tile_rows();
      tiles_.pack_left({of_.x + (begin + first) * k_, k_, false}, std::min(tile_rows(), rows - first), k_,
                       x_ + tile * tiles_.left_bytes(1, k_));
    });
    for (int64_t j = 0; j < of_.v; j += workspace_.columns) {
      const int64_t columns = std::min(workspace_.columns, of_.v - j);
      pack_block(j, columns);
      share(pool_, parts, rows * columns * k_, [&](int64_t part, int worker) {
        const int64_t from = tiles * part / parts * tile_rows(), to = tiles * (part + 1) / parts * tile_rows();
        run_part(begin, from, std::min(to, rows) - from, j, columns, own_ + worker * workspace_.worker());
      });
    }
    share_ranges(pool_, rows, 1, 4 * k_, [&](int64_t first, int64_t last, int worker) {
      auto* row =
          reinterpret_cast<float*>(own_ + worker * workspace_.worker() + workspace_.logits + workspace_.packed);
      for (int64_t i = first; i < last; ++i) finish(begin + i, states_[i], row, unpacker_workspace(worker));
    });
  }

  /// Rows [j, j + columns) of w as the right side of logits, and of dx.
  void pack_block(int64_t j, int64_t columns) {
    const bool blocked = of_.weight.is_blocked;
    if (blocked)
      share_ranges(pool_, columns, 8, k_, [&](int64_t first, int64_t last, int worker) {
        of_.unpacker(isa).unpack(j + first, last - first, reinterpret_cast<float*>(unpacked_) + first * k_,
                                 unpacker_workspace(worker));
      });
    auto right = [&](bool transposed) {
      if (!blocked) return transposed ? head_.weight(true).from(0, j) : head_.weight(false).from(j, 0);
      return GemmRight{reinterpret_cast<const uint8_t*>(unpacked_), DType::f32, k_, transposed};
    };
    const int64_t panels = (columns + panel_columns - 1) / panel_columns,
                  all = panels + (k_ + panel_columns - 1) / panel_columns;
    share(pool_, all, 2 * columns * k_, [&](int64_t item, int) {
      const int64_t at = (item < panels ? item : item - panels) * panel_columns;
      if (item < panels)
        tiles_.pack_right(right(true).from(0, at), std::min(panel_columns, columns - at), k_, transposed_at(at));
      else tiles_.pack_right(right(false).from(0, at), std::min(panel_columns, k_ - at), columns, plain_at(at));
    });
  }

  /// Processes rows [begin + from, ... + rows) with a block of w.
  void run_part(int64_t begin, int64_t from, int64_t rows, int64_t j, int64_t columns, std::byte* own) {
    auto* logits = reinterpret_cast<float*>(own);
    std::byte* packed = own + workspace_.logits;
    const std::byte* x = x_ + from / tile_rows() * tiles_.left_bytes(1, k_);
    for (int64_t c = 0; c < columns; c += panel_columns)
      tiles_.block({x, transposed_at(c), rows, std::min(panel_columns, columns - c), k_, logits + c,
                    workspace_.stride, false});
    for (int64_t i = 0; i < rows; ++i) {
      RowLoss& loss = states_[from + i];
      const float before = loss.most;
      head_.weigh(begin + from + i, j, columns, logits + i * workspace_.stride, loss);
      if (j > 0 && loss.most != before)
        head_.multiply(head_.dx + (begin + from + i) * k_, std::exp(before - loss.most), k_);
    }
    for (int64_t i = 0; i < rows; i += tile_rows())
      tiles_.pack_left({logits + i * workspace_.stride, workspace_.stride, false}, std::min(tile_rows(), rows - i),
                       columns, packed + i / tile_rows() * tiles_.left_bytes(1, columns));
    for (int64_t c = 0; c < k_; c += panel_columns)
      tiles_.block({packed, plain_at(c), rows, std::min(panel_columns, k_ - c), columns,
                    head_.dx + (begin + from) * k_ + c, k_, j > 0});
  }

  /// A token's dx from the weighted sum of all rows of w; `buffer` has k floats.
  void finish(int64_t token, const RowLoss& loss, float* buffer, std::byte* scratch) const {
    float* row = head_.dx + token * k_;
    head_.give_loss(token, loss);
    head_.multiply(row, head_.dloss[token] / loss.sum, k_);
    const int64_t label = of_.place(token);
    if (label < 0) return;
    const uint8_t* w = of_.weight.is_blocked ? nullptr : head_.weight(false).from(label, 0).data;
    if (!w) of_.unpacker(isa).unpack(label, 1, buffer, scratch);
    else if (of_.w.dtype == DType::bf16) head_.element.widen_bf16(w, buffer, k_);
    else if (of_.w.dtype == DType::f16) head_.element.widen_f16(w, buffer, k_);
    else std::memcpy(buffer, w, static_cast<size_t>(4 * k_));
    head_.multiply(buffer, head_.label_slope(token, loss), k_);
    head_.element.binary[static_cast<int>(Binary::sub)](row, 1, buffer, 1, row, k_);
  }

  const Head<isa>& head_;
  const HeadCall& of_;
  const GemmTiles& tiles_;
  ThreadPool& pool_;
  const int64_t k_;
  const FrozenWorkspace workspace_;
  RowLoss* const states_;
  std::byte *const x_, *const transposed_, *const plain_, *const unpacked_, *const own_;
};

bool is_trained(std::span<const TensorView> outputs) { return gradient(outputs, 2) || gradient(outputs, 3); }

template <Isa isa>
int64_t scratch_bytes(const KernelState* state, std::span<const TensorView> inputs,
                      std::span<const TensorView> outputs, int threads) {
  const HeadCall of(*static_cast<const HeadState*>(state), inputs, 4);
  if (is_trained(outputs)) return TrainedWorkspace(gemm_tiles(isa), of, threads).bytes();
  return FrozenWorkspace(isa, gemm_tiles(isa), of, threads).bytes(threads);
}

/// x, w, labels, dloss [...], bias? -> losses [...], dx [..., k], dw? [v, k], dbias? [v]. The last two: not for a
/// quantised w.
template <Isa isa>
KernelStatus run(const KernelCall& call) {
  const HeadCall of(*static_cast<const HeadState*>(call.state), call.inputs, 4);
  const bool trained = is_trained(call.outputs);
  if (!of.fits() || (trained && of.weight.is_blocked)) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  const Head<isa> head(call, of);
  if (trained) run_trained(head, gradient(call.outputs, 2), gradient(call.outputs, 3));
  else FrozenHead<isa>(head).run();
  return {};
}

bool accepts_rounded(const NodeInfo& node) {
  return accepts_head<4>(node) && node.inputs[1].dtype != DType::f16 && node.attributes.integer("round_x", 0) == 1;
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.HeadLoss",
              .dtypes = rounds_x(isa) ? "f32 x f32|bf16|2 to 8 bits, round_x" : "f32 x f32|bf16|f16|2 to 8 bits",
              .accepts = rounds_x(isa) ? accepts_rounded : accepts_head<4>,
              .prepare = prepare_head,
              .scratch_bytes = scratch_bytes<isa>,
              .run = run<isa>});
}

}  // namespace

void add_head_loss(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu
