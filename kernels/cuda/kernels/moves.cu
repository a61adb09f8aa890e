// Kernels that move rows: embeddings, gathered rows, keys and values to their pages.
#include "kernels/cuda/kernels/moves.h"

#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/linear_weights.h"
#include "kernels/cuda/kernels/peer_words.h"

namespace plait::cuda {
namespace {

/// Element k of a row of weights as linear_pack.cpp lays them out.
template <bool is_f16>
struct PackedRows {
  static PLAIT_DEVICE float at(const EmbeddingOperands& o, int64_t row, int k) {
    const WeightPlace p = place_of(static_cast<int>(row % strip_rows), k % unit_k);
    const int64_t group = (row / strip_rows * o.units + k / unit_k) * 2 + p.half;
    const uint16_t bits = static_cast<const uint16_t*>(o.table)[((group * lanes + p.lane) * 4 + p.r) * 2 + p.e];
    return is_f16 ? f16_to_float(bits) : bf16_low(bits);
  }
};
template <class T>
struct PlainRows {
  static PLAIT_DEVICE float at(const EmbeddingOperands& o, int64_t row, int k) {
    return value_of(static_cast<const T*>(o.table)[row * o.h + k]);
  }
};
/// Quantised in blocks; `bytes`: codes of 8 bits.
template <bool bytes>
struct BlockRows {
  static PLAIT_DEVICE float at(const EmbeddingOperands& o, int64_t row, int k) {
    const int block = k / o.block, within = k % o.block, unit = (block << o.block_shift) + within / unit_k;
    const WeightPlace p = place_of(static_cast<int>(row % strip_rows), within % unit_k);
    const int64_t strip = row / strip_rows, groups = bytes ? o.units : (o.units + 1) / 2;
    const int64_t group = strip * groups + (bytes ? unit : unit / 2);
    const int word = bytes ? p.half * 2 + p.r / 2 : unit % 2 * 2 + p.half;
    const uint32_t codes = static_cast<const uint32_t*>(o.table)[(group * lanes + p.lane) * 4 + word];
    const int bit = (bytes ? 8 * (p.r % 2) : 4 * p.r) + 16 * p.e;
    const int code = static_cast<int>(codes >> bit & (bytes ? 255 : 15));
    const int64_t at = ((strip * o.blocks + block) * 8 + row % 8) * 2 + row % strip_rows / 8;
    const float zero = o.zeros ? static_cast<const float*>(o.zeros)[at] : o.zero;
    return (code - zero) * static_cast<const float*>(o.scales)[at];
  }
};

template <class Rows>
PLAIT_DEVICE void embed(const EmbeddingOperands& o) {
  const int64_t id = load_index(o.ids, blockIdx.x);
  const bool exists = id >= 0 && id < (o.whole ? o.whole : o.rows);
  if (!exists && threadIdx.x == 0) report_index(o.report, 1, id);
  const int64_t row = id - o.offset;
  const bool here = exists && row >= 0 && row < o.rows;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * o.h;
  const uint32_t number = number_if_given(o.give);
  for (int k = threadIdx.x; k < o.h; k += move_threads) {
    const float y = here ? Rows::at(o, row, k) : 0;
    o.y[begin + k] = y;
    give(o.give, number, begin + k, y);
  }
}

template <class Word>
PLAIT_DEVICE void gather(const GatherOperands& o) {
  const int64_t i = blockIdx.x, named = load_index(o.rows, o.shared ? i % o.n : i);
  const int64_t row = o.shared && named < 0 ? named + o.s : named;
  if (row < 0 || row >= o.s) {
    if (threadIdx.x == 0) report_index(o.report, 1, named);
    return;
  }
  const Word* const from = static_cast<const Word*>(o.x) + (i / o.n * o.s + row) * o.inner;
  Word* const to = static_cast<Word*>(o.y) + i * o.inner;
  for (int64_t at = threadIdx.x; at < o.inner; at += move_threads) to[at] = from[at];
}

template <class T>
PLAIT_DEVICE void write_kv(const KvWriteOperands& o) {
  const int64_t token = blockIdx.x, head = blockIdx.y, slot = load_index(o.slots, token);
  if (slot == -1) return;
  if (slot < 0 || slot >= o.pages * o.c) {
    if (threadIdx.x == 0) report_index(o.report, 4, slot);
    return;
  }
  const int64_t row = token * o.g + head, place = slot / o.c * o.g + head, column = slot % o.c;
  for (int i = threadIdx.x; i < o.d; i += move_threads)
    store(static_cast<T*>(o.keys) + (place * o.d + i) * o.c + column, o.k[row * o.d + i]);
  for (int i = threadIdx.x; i < o.e; i += move_threads)
    store(static_cast<T*>(o.values) + (place * o.c + column) * o.e + i, o.v[row * o.e + i]);
}

}  // namespace

PLAIT_KERNEL(embed_packed_bf16, move_threads, 8, (EmbeddingOperands operands)) { embed<PackedRows<false>>(operands); }
PLAIT_KERNEL(embed_packed_f16, move_threads, 8, (EmbeddingOperands operands)) { embed<PackedRows<true>>(operands); }
PLAIT_KERNEL(embed_int8, move_threads, 8, (EmbeddingOperands operands)) { embed<BlockRows<true>>(operands); }
PLAIT_KERNEL(embed_int4, move_threads, 8, (EmbeddingOperands operands)) { embed<BlockRows<false>>(operands); }
PLAIT_KERNEL(embed_f32, move_threads, 8, (EmbeddingOperands operands)) { embed<PlainRows<float>>(operands); }
PLAIT_KERNEL(embed_bf16, move_threads, 8, (EmbeddingOperands operands)) { embed<PlainRows<Bf16>>(operands); }
PLAIT_KERNEL(embed_f16, move_threads, 8, (EmbeddingOperands operands)) { embed<PlainRows<F16>>(operands); }

PLAIT_KERNEL(gather_rows_4, move_threads, 8, (GatherOperands operands)) { gather<uint32_t>(operands); }
PLAIT_KERNEL(gather_rows_1, move_threads, 8, (GatherOperands operands)) { gather<uint8_t>(operands); }

PLAIT_KERNEL(kv_write_f32, move_threads, 8, (KvWriteOperands operands)) { write_kv<float>(operands); }
PLAIT_KERNEL(kv_write_bf16, move_threads, 8, (KvWriteOperands operands)) { write_kv<Bf16>(operands); }
PLAIT_KERNEL(kv_write_f16, move_threads, 8, (KvWriteOperands operands)) { write_kv<F16>(operands); }

PLAIT_KERNEL(copy_halves, move_threads, 8, (const uint16_t* from, uint16_t* to, int64_t halves)) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * move_threads + threadIdx.x;
  if (at < halves) to[at] = from[at];
}

}  // namespace plait::cuda
