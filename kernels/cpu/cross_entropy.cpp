// A head and the loss behind it. plait.HeadStatistics and plait.HeadBack go by blocks of the vocabulary, plait.HeadLoss by
// blocks of rows, which makes each product once: logits of one block are all that stand in memory. Products are those of
// Linear and MatMul.
#include <cmath>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/linear_blocks.h"
#include "kernels/cpu/loss_loops.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/share.h"

namespace plait::cpu {
namespace {

/// Rows of w in a block, and tokens at a time: a block of logits is 256 KB, and w's rows of a block stay in the cache while
/// all tokens meet them.
constexpr int64_t block_columns = 256, block_rows = 256;

struct HeadState : KernelState {
  int64_t chunks = 1;
  LogitScale scale;
  ShardedAxis shard;  ///< of chunks
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<HeadState>();
  state->chunks = node.attributes.integer("chunks", 1);
  state->scale = {static_cast<float>(node.attributes.real("scale", 1)),
                  static_cast<float>(node.attributes.real("softcap", 0))};
  state->shard = ShardedAxis::of(node.attributes);
  return state;
}

bool accepts(const NodeInfo& node) {
  const OperandInfo &x = node.inputs[0], &w = node.inputs[1], &labels = node.inputs[2];
  return x.dtype == DType::f32 && w.rank == 2 && labels.dtype == DType::i32 &&
         (w.dtype == DType::f32 || w.dtype == DType::bf16 || w.dtype == DType::f16);
}

/// A call's operands and how it is cut into blocks.
struct Call {
  Call(const HeadState& state, std::span<const TensorView> inputs)
      : state(state),
        x(inputs[0].as<float>()),
        w(inputs[1]),
        labels(inputs[2].as<int32_t>()),
        k(inputs[0].shape.back(1)),
        m(inputs[2].elements()),
        v(w.shape[0]),
        chunk(v / std::max<int64_t>(state.chunks, 1)) {}

  bool fits() const { return state.chunks > 0 && v % state.chunks == 0 && w.shape[1] == k; }
  /// The first label that is no token of the vocabulary and not -1; -1: there is none.
  int64_t wrong_label() const {
    const int64_t all = (state.shard.whole ? state.shard.whole : state.chunks) * chunk;
    for (int64_t i = 0; i < m; ++i)
      if (labels[i] < -1 || labels[i] >= all) return labels[i];
    return -1;
  }
  /// Where a token's label is among the rows of w here; -1: nowhere.
  int64_t place(int64_t i) const {
    const int64_t at = labels[i] - state.shard.offset * chunk;
    return labels[i] >= 0 && at >= 0 && at < v ? at : -1;
  }

  const HeadState& state;
  const float* x;
  const TensorView& w;
  const int32_t* labels;
  const int64_t k, m, v, chunk;
};

/// Scratch: x packed, for all; then for each worker what products need, a block of logits, and what `own` bytes are for.
struct Room {
  Room(Isa isa, const Call& call, int64_t own) : own(align(own)) {
    packed = packs_x(isa, call.m) ? align(packed_tiles(isa).bytes(call.m, call.k)) : 0;
    block = packed ? align(4 * packed_tiles(isa).scratch(block_columns, call.k)) : 0;
  }
  int64_t worker() const { return block + align(4 * block_rows * block_columns) + own; }
  int64_t bytes(int threads) const { return packed + worker() * threads; }
  int64_t packed, block, own;
};

/// Products of blocks: x w^T.
template <Isa isa>
class Products {
 public:
  Products(const KernelCall& call, const Call& of, const Room& room)
      : of_(of),
        room_(room),
        scratch_(call.scratch.data()),
        threads_(call.pool.size()),
        group_(packed_tiles(isa).group(of.m)) {
    if (!room.packed) return;
    share(call.pool, (of.m + group_ - 1) / group_, of.m * of.k,
          [&](int64_t index, int) { packed_tiles(isa).pack(of.x, of.m, of.k, index, scratch_); });
  }

  std::byte* own(int worker) const {
    return scratch_ + room_.packed + worker * room_.worker() + room_.block + align(4 * block_rows * block_columns);
  }
  /// Tokens [i, i + rows) with rows [j, j + columns) of w: [rows, columns], the worker's until the next.
  float* make(int worker, int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    std::byte* block = scratch_ + room_.packed + worker * room_.worker();
    auto* y = reinterpret_cast<float*>(block + room_.block);
    const Weight weight{of_.w.as<const uint8_t>(), of_.w.dtype, of_.v, false, {}};
    run_block<isa>({of_.x, of_.k, room_.packed ? scratch_ : nullptr, group_, reinterpret_cast<float*>(block), nullptr,
                    nullptr, threads_},
                   weight, i, rows, j, columns, y, columns, nullptr);
    return y;
  }
  /// Tokens at a time: whole groups of packed ones, which are of 64 at most.
  int64_t rows_at_once() const { return block_rows / group_ * group_; }

 private:
  const Call& of_;
  const Room& room_;
  std::byte* scratch_;
  const int threads_;
  const int64_t group_;
};

template <Isa isa>
int64_t statistics_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                           int threads) {
  return Room(isa, Call(*static_cast<const HeadState*>(state), inputs), 0).bytes(threads);
}

/// x [..., k], w [v, k], labels [...] -> maxima [..., c], sums [..., c], picked [...].
template <Isa isa>
KernelStatus run_statistics(const KernelCall& call) {
  const Call of(*static_cast<const HeadState*>(call.state), call.inputs);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  float *maxima = call.outputs[0].as<float>(), *sums = call.outputs[1].as<float>(),
        *picked = call.outputs[2].as<float>();
  for (int64_t i = 0; i < of.m; ++i)
    if (of.place(i) < 0) picked[i] = 0;
  const Room room(isa, of, 0);
  const Products<isa> products(call, of, room);
  const LossLoops& loops = loss_loops(loops_of(isa));
  const int64_t chunks = of.state.chunks, at_once = products.rows_at_once(), groups = (of.m + at_once - 1) / at_once;
  share(call.pool, chunks * groups, of.m * of.v * of.k, [&](int64_t item, int worker) {
    const int64_t c = item / groups, begin = item % groups * at_once, rows = std::min(at_once, of.m - begin);
    for (int64_t i = begin; i < begin + rows; ++i) maxima[i * chunks + c] = -HUGE_VALF, sums[i * chunks + c] = 0;
    for (int64_t j = c * of.chunk; j < (c + 1) * of.chunk; j += block_columns) {
      const int64_t columns = std::min(block_columns, (c + 1) * of.chunk - j);
      float* logits = products.make(worker, begin, rows, j, columns);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = (begin + i) * chunks + c, label = of.place(begin + i) - j;
        loops.to_logits(logits + i * columns, columns, of.state.scale);
        loops.take_in(logits + i * columns, columns, maxima[at], sums[at]);
        if (of.place(begin + i) >= 0 && label >= 0 && label < columns)
          picked[begin + i] = logits[i * columns + label];
      }
    }
  });
  return {};
}

/// A worker's own of HeadBack: its part of dx, a block of changes turned, a block of w in f32, and a panel.
struct BackRoom {
  explicit BackRoom(const Call& call)
      : dx(align(4 * call.m * call.k)),
        turned(align(4 * block_rows * block_columns)),
        widened(call.w.dtype == DType::f32 ? 0 : align(4 * block_columns * call.k)) {}
  int64_t bytes() const { return dx + turned + widened + align(4 * matmul_panel); }
  int64_t dx, turned, widened;
};

template <Isa isa>
int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const Call of(*static_cast<const HeadState*>(state), inputs);
  return Room(isa, of, BackRoom(of).bytes()).bytes(threads);
}

/// A token's logits of rows [j, j + columns) of w become the changes of the products.
void change_row(const Call& of, const LossLoops& loops, int64_t token, int64_t j, int64_t columns, float sum,
                float dloss, float* row) {
  const int64_t label = of.place(token) - j;
  const bool here = of.place(token) >= 0 && label >= 0 && label < columns;
  const LogitScale& scale = of.state.scale;
  const float part = here && scale.cap != 0 ? row[label] / scale.cap : 0;
  loops.changes(row, columns, scale, sum, dloss);
  if (here) row[label] -= dloss * scale.scale * (1 - part * part);
}

/// x, w, labels, logsumexp [...], dloss [...] -> dx [..., k], dw? [v, k].
template <Isa isa>
KernelStatus run_back(const KernelCall& call) {
  constexpr Isa products_isa = loops_of(isa);
  const Call of(*static_cast<const HeadState*>(call.state), call.inputs);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  const float *sums = call.inputs[3].as<float>(), *dloss = call.inputs[4].as<float>();
  float* dx = call.outputs[0].as<float>();
  float* dw = call.outputs.size() > 1 && call.outputs[1].present() ? call.outputs[1].as<float>() : nullptr;
  const BackRoom back(of);
  const Room room(isa, of, back.bytes());
  const Products<isa> products(call, of, room);
  const int threads = call.pool.size();
  for (int worker = 0; worker < threads; ++worker) std::memset(products.own(worker), 0, static_cast<size_t>(back.dx));
  const LossLoops& loops = loss_loops(products_isa);
  const ElementwiseLoops& element = elementwise_loops(products_isa);
  const int64_t at_once = products.rows_at_once();
  // Which blocks add to which part of dx is fixed, so that the bits do not depend on who was free first.
  const int64_t blocks = (of.v + block_columns - 1) / block_columns;
  auto run_block_at = [&](int64_t j, int part, int worker) {
    const int64_t columns = std::min(block_columns, of.v - j);
    std::byte* own = products.own(part);
    auto* own_dx = reinterpret_cast<float*>(own);
    auto* turned = reinterpret_cast<float*>(own + back.dx);
    auto* widened = reinterpret_cast<float*>(own + back.dx + back.turned);
    auto* panel = reinterpret_cast<float*>(own + back.dx + back.turned + back.widened);
    const uint8_t* rows_of_w = of.w.as<const uint8_t>() + j * of.k * dtype_bits(of.w.dtype) / 8;
    const float* w = widened;
    if (of.w.dtype == DType::f32) w = reinterpret_cast<const float*>(rows_of_w);
    else if (of.w.dtype == DType::bf16) element.widen_bf16(rows_of_w, widened, columns * of.k);
    else element.widen_f16(rows_of_w, widened, columns * of.k);
    for (int64_t begin = 0; begin < of.m; begin += at_once) {
      const int64_t rows = std::min(at_once, of.m - begin);
      float* changes = products.make(worker, begin, rows, j, columns);
      for (int64_t i = 0; i < rows; ++i) {
        loops.to_logits(changes + i * columns, columns, of.state.scale);
        change_row(of, loops, begin + i, j, columns, sums[begin + i], dloss[begin + i], changes + i * columns);
      }
      multiply(products_isa,
               {changes, columns, rows, w, of.k, of.k, columns, own_dx + begin * of.k, of.k, panel, true});
      if (!dw) continue;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t c = 0; c < columns; ++c) turned[c * rows + i] = changes[i * columns + c];
      multiply(products_isa,
               {turned, rows, columns, of.x + begin * of.k, of.k, of.k, rows, dw + j * of.k, of.k, panel, begin > 0});
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

// ---- plait.HeadLoss ----

/// Logits of some rows stand in memory, in about so many bytes: enough rows to pay for reading w.
constexpr int64_t logits_bytes = 64 << 20;
int64_t rows_at_once(int64_t m, int64_t v) {
  return std::min(m, std::clamp<int64_t>(logits_bytes / 4 / std::max<int64_t>(v, 1), 64, 512));
}

/// Scratch of a call: logits; x packed, for all; the products' of both gradients; and for each worker what a block needs.
struct LossRoom {
  LossRoom(Isa isa, const Call& call, int threads)
      : rows(rows_at_once(call.m, call.v)),
        columns(item_columns(isa, rows, call.v, call.k, threads)),
        logits(align(4 * rows * call.v)),
        packed(packs_x(isa, rows) ? align(packed_tiles(isa).bytes(rows, call.k)) : 0),
        block(packed ? align(4 * packed_tiles(isa).scratch(columns, call.k)) : 0),
        products(align(std::max(GemmRoom(gemm_tiles(isa), rows, call.v).bytes(threads),
                                GemmRoom(gemm_tiles(isa), call.v, rows).bytes(threads)))) {}
  int64_t bytes(int threads) const { return logits + packed + products + block * threads; }
  int64_t rows, columns, logits, packed, block, products;
};

template <Isa isa>
int64_t loss_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  return LossRoom(isa, Call(*static_cast<const HeadState*>(state), inputs), threads).bytes(threads);
}

/// logits [rows, v] = x w^T of rows [begin, begin + rows).
template <Isa isa>
void make_products(const KernelCall& call, const Call& of, const LossRoom& room, int64_t begin, int64_t rows,
                   float* logits) {
  std::byte *packed = call.scratch.data() + room.logits, *blocks = packed + room.packed + room.products;
  const float* x = of.x + begin * of.k;
  const int64_t group = packed_tiles(isa).group(rows);
  const bool packs = packs_x(isa, rows);
  if (packs)
    share(call.pool, (rows + group - 1) / group, rows * of.k,
          [&](int64_t index, int) { packed_tiles(isa).pack(x, rows, of.k, index, packed); });
  const Weight weight{of.w.as<const uint8_t>(), of.w.dtype, of.v, false, {}};
  share(call.pool, (of.v + room.columns - 1) / room.columns, rows * of.v * of.k, [&](int64_t item, int worker) {
    const int64_t j = item * room.columns;
    run_block<isa>({x, of.k, packs ? packed : nullptr, group, reinterpret_cast<float*>(blocks + worker * room.block),
                    nullptr, nullptr, call.pool.size()},
                   weight, 0, rows, j, std::min(room.columns, of.v - j), logits + j, of.v, nullptr);
  });
}

/// x, w, labels, dloss [...] -> losses [...], dx [..., k], dw? [v, k]: some rows at a time, all of the vocabulary.
template <Isa isa>
KernelStatus run_loss(const KernelCall& call) {
  const Call of(*static_cast<const HeadState*>(call.state), call.inputs);
  if (!of.fits()) return {KernelCode::bad_value, 1, of.v};
  if (const int64_t wrong = of.wrong_label(); wrong != -1) return {KernelCode::index_out_of_range, 2, wrong};
  const float* dloss = call.inputs[3].as<float>();
  float *losses = call.outputs[0].as<float>(), *dx = call.outputs[1].as<float>();
  float* dw = call.outputs.size() > 2 && call.outputs[2].present() ? call.outputs[2].as<float>() : nullptr;
  const LossRoom room(isa, of, call.pool.size());
  auto* logits = reinterpret_cast<float*>(call.scratch.data());
  std::byte* products = call.scratch.data() + room.logits + room.packed;
  const LossLoops& loops = loss_loops(loops_of(isa));
  if (dw && of.m == 0) std::memset(dw, 0, static_cast<size_t>(4 * of.v * of.k));
  for (int64_t begin = 0; begin < of.m; begin += room.rows) {
    const int64_t rows = std::min(room.rows, of.m - begin);
    make_products<isa>(call, of, room, begin, rows, logits);
    share(call.pool, rows, rows * of.v * 16, [&](int64_t i, int) {
      float *row = logits + i * of.v, most = -HUGE_VALF, sum = 0;
      loops.to_logits(row, of.v, of.state.scale);
      loops.take_in(row, of.v, most, sum);
      const float whole = most + std::log(sum);
      const int64_t label = of.place(begin + i);
      losses[begin + i] = whole - (label >= 0 ? row[label] : 0);
      change_row(of, loops, begin + i, 0, of.v, whole, dloss[begin + i], row);
    });
    run_gemm(call.pool, gemm_tiles(isa),
             {{logits, of.v, false},
              {of.w.as<const uint8_t>(), of.w.dtype, of.k},
              rows,
              of.k,
              of.v,
              dx + begin * of.k,
              of.k},
             products);
    if (dw)
      run_gemm(call.pool, gemm_tiles(isa),
               {{logits, of.v, true},
                {reinterpret_cast<const uint8_t*>(of.x + begin * of.k), DType::f32, of.k},
                of.v,
                of.k,
                rows,
                dw,
                of.k,
                begin > 0},
               products);
  }
  return {};
}

bool accepts_rounded(const NodeInfo& node) {
  return accepts(node) && node.inputs[1].dtype == DType::bf16 && node.attributes.integer("round_x", 0) == 1;
}

template <Isa isa>
void add_loss(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.HeadLoss",
              .dtypes = rounds_x(isa) ? "f32 x bf16, round_x" : "f32 x f32|bf16|f16",
              .accepts = rounds_x(isa) ? accepts_rounded : accepts,
              .prepare = prepare,
              .scratch_bytes = loss_scratch<isa>,
              .run = run_loss<isa>});
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.HeadStatistics",
              .dtypes = "f32 x f32|bf16|f16",
              .accepts = accepts,
              .prepare = prepare,
              .scratch_bytes = statistics_scratch<isa>,
              .run = run_statistics<isa>});
  add_kernel(table, isa,
             {.op = "plait.HeadBack",
              .dtypes = "f32 x f32|bf16|f16",
              .accepts = accepts,
              .prepare = prepare,
              .scratch_bytes = back_scratch<isa>,
              .run = run_back<isa>});
}

}  // namespace

void add_cross_entropy(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table), add_loss<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table), add_loss<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_loss<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_loss<Isa::amx>(table);
}

}  // namespace plait::cpu
