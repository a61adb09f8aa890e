// Collectives over devices: reductions in ascending order of ranks, with the same bits on all of them. Each step's writes are in a launch
// before the one that waits for them, and a rank's launches wait for earlier ones of the others only, so that any order of blocks ends.
#include "kernels/cuda/kernels/norm_rows.h"
#include "kernels/cuda/kernels/peer_words.h"

namespace plait::cuda {
namespace {

/// The last block to get here ends the collective: what follows in the stream has the next number.
PLAIT_DEVICE void finish(const PeerOperands& o, uint32_t number) {
  auto* const state = reinterpret_cast<uint32_t*>(o.own);
  __syncthreads();
  if (threadIdx.x) return;
  __threadfence();
  if (atomicAdd(state + 1, 1U) != gridDim.x * gridDim.y - 1) return;
  __threadfence();
  state[1] = 0;
  state[0] = number;
}

PLAIT_DEVICE uint32_t* flag_at(uint8_t* buffer, uint32_t number, int step, int from) {
  const int64_t row = (static_cast<int64_t>(number % peer_slots) * 2 + step) * most_peers + from;
  return reinterpret_cast<uint32_t*>(buffer + peer_flags_at) + row * peer_blocks + blockIdx.x;
}
PLAIT_DEVICE uint4* line_at(const PeerOperands& o, uint8_t* buffer, uint32_t number, int step, int from, int64_t i) {
  const int64_t row = (static_cast<int64_t>(number % peer_slots) * 2 + step) * o.ranks + from;
  return reinterpret_cast<uint4*>(buffer + peer_lines_at(o.ranks)) + row * peer_chunk_lines(o.ranks) + i;
}

/// The elements of a word: one, or two of 16 bits.
struct Values {
  float low, high;
};
PLAIT_DEVICE Values values_of(PeerElement element, uint32_t word) {
  if (element == PeerElement::f32) return {__uint_as_float(word), 0};
  if (element == PeerElement::bf16) return {bf16_low(word), bf16_high(word)};
  return {f16_low(word), f16_high(word)};
}
PLAIT_DEVICE uint32_t word_of(PeerElement element, const Values& values) {
  if (element == PeerElement::f32) return __float_as_uint(values.low);
  return element == PeerElement::bf16 ? pack_bf16(values.low, values.high) : pack_f16(values.low, values.high);
}

/// NaN if one is NaN.
PLAIT_DEVICE float joined(PeerReduction reduction, float a, float b) {
  if (reduction == PeerReduction::max) return a != a || a > b ? a : b;
  if (reduction == PeerReduction::min) return a != a || a < b ? a : b;
  return a + b;
}
PLAIT_DEVICE void join(const PeerOperands& o, Values& sum, uint32_t word, bool first) {
  const Values values = values_of(o.element, word);
  sum.low = first ? values.low : joined(o.reduction, sum.low, values.low);
  sum.high = first ? values.high : joined(o.reduction, sum.high, values.high);
}

// ---- one step ----

PLAIT_DEVICE int64_t word_number() { return static_cast<int64_t>(blockIdx.x) * peer_threads + threadIdx.x; }

/// Of f32, or two elements of 16 bits; 0 where there is only one.
PLAIT_DEVICE uint32_t load_word(const PeerOperands& o, int64_t i) {
  if (o.element == PeerElement::f32) return reinterpret_cast<const uint32_t*>(o.in)[i];
  const uint16_t* const two = reinterpret_cast<const uint16_t*>(o.in) + 2 * i;
  return two[0] | (4 * i + 2 < o.bytes ? static_cast<uint32_t>(two[1]) << 16 : 0);
}
PLAIT_DEVICE void store_word(const PeerOperands& o, int64_t i, uint32_t word) {
  if (o.element == PeerElement::f32) {
    reinterpret_cast<uint32_t*>(o.out)[i] = word;
    return;
  }
  uint16_t* const two = reinterpret_cast<uint16_t*>(o.out) + 2 * i;
  two[0] = static_cast<uint16_t>(word);
  if (4 * i + 2 < o.bytes) two[1] = static_cast<uint16_t>(word >> 16);
}

/// False where a rank has failed.
PLAIT_DEVICE bool reduce_word(const PeerOperands& o, uint32_t number, int64_t i, uint32_t& out) {
  const uint32_t own = load_word(o, i);
  Values sum{};
  for (int rank = 0; rank < o.ranks; ++rank) {
    uint32_t word = own;
    if (rank != o.rank && !spin_until(word_at(o, o.own, number, rank, i), number, o.stop, word)) return false;
    join(o, sum, word, !rank);
  }
  out = word_of(o.element, sum);
  return true;
}

/// A block adds a row of the sum of all ranks to a row of x, if there is one, and makes the norm. Bits are those of the sum, the addition and
/// the norm by themselves. Where a rank has failed, nobody reads what comes of it.
template <bool centre>
PLAIT_DEVICE void sum_norm(const PeerOperands& p, const float* x, float* y, NormOperands o) {
  const uint32_t number = number_of(p);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * o.width;
  float* const sums = o.sum ? o.sum : y;
  for (int i = threadIdx.x; i < o.width; i += norm_threads) {
    uint32_t word = 0;
    reduce_word(p, number, begin + i, word);
    sums[begin + i] = x ? x[begin + i] + __uint_as_float(word) : __uint_as_float(word);
  }
  o.added = nullptr, o.sum = nullptr;  // each thread reads what it has written
  norm<centre>(sums, y, o);
  finish(p, number);
}

// ---- two steps ----

PLAIT_DEVICE int64_t line_number() { return static_cast<int64_t>(blockIdx.x) * peer_threads + threadIdx.x; }

/// Bytes of a rank's chunk that are in line i, or after it; not positive: none.
PLAIT_DEVICE int64_t bytes_from(const PeerOperands& o, int rank, int64_t i) {
  const int64_t left = o.bytes - rank * o.stride;
  return (left < o.chunk ? left : o.chunk) - i * peer_line;
}

union Line {
  uint4 whole;
  uint32_t words[4];
  uint8_t bytes[peer_line];
};

/// At most `bytes` of a line, the others 0.
PLAIT_DEVICE Line load_line(const PeerOperands& o, const uint8_t* from, int64_t bytes) {
  Line line{};
  if (o.aligned && bytes >= peer_line) {
    line.whole = *reinterpret_cast<const uint4*>(from);
    return line;
  }
#pragma unroll
  for (int i = 0; i < peer_line; ++i)
    if (i < bytes) line.bytes[i] = from[i];
  return line;
}
PLAIT_DEVICE void store_line(const PeerOperands& o, uint8_t* to, const Line& line, int64_t bytes) {
  if (o.aligned && bytes >= peer_line) {
    *reinterpret_cast<uint4*>(to) = line.whole;
    return;
  }
#pragma unroll
  for (int i = 0; i < peer_line; ++i)
    if (i < bytes) to[i] = line.bytes[i];
}

/// The reduction of a line of this rank's chunk, which the others have written.
PLAIT_DEVICE Line sum_line(const PeerOperands& o, uint32_t number, int64_t i, const Line& own) {
  Values sums[4]{};
  for (int rank = 0; rank < o.ranks; ++rank) {
    Line line = own;
    if (rank != o.rank) line.whole = *line_at(o, o.own, number, 0, rank, i);
#pragma unroll
    for (int k = 0; k < 4; ++k) join(o, sums[k], line.words[k], !rank);
  }
  Line out;
#pragma unroll
  for (int k = 0; k < 4; ++k) out.words[k] = word_of(o.element, sums[k]);
  return out;
}

}  // namespace

PLAIT_KERNEL(peer_write, peer_threads, 4, (PeerOperands o)) {
  const int64_t i = word_number();
  if (i * 4 >= o.bytes) return;
  give_word(o, number_of(o), i, load_word(o, i));
}

PLAIT_KERNEL(peer_sum, peer_threads, 4, (PeerOperands o)) {
  const int64_t i = word_number();
  const uint32_t number = number_of(o);
  uint32_t word = 0;
  if (i * 4 < o.bytes && reduce_word(o, number, i, word)) store_word(o, i, word);
  finish(o, number);
}

/// After peer_write, of f32: y = the norm of x + the sum, whose rows have o.width elements. x may be null.
PLAIT_KERNEL(peer_rms_norm, norm_threads, 4, (PeerOperands p, const float* x, float* y, NormOperands o)) {
  sum_norm<false>(p, x, y, o);
}
PLAIT_KERNEL(peer_layer_norm, norm_threads, 4, (PeerOperands p, const float* x, float* y, NormOperands o)) {
  sum_norm<true>(p, x, y, o);
}

/// A row of blocks for each other rank.
PLAIT_KERNEL(peer_scatter, peer_threads, 4, (PeerOperands o)) {
  const int to = (o.rank + 1 + static_cast<int>(blockIdx.y)) % o.ranks;
  const uint32_t number = number_of(o);
  const int64_t i = line_number(), bytes = bytes_from(o, to, i);
  uint8_t* const buffer = o.buffers[to];
  if (bytes > 0)
    *line_at(o, buffer, number, 0, o.rank, i) = load_line(o, o.in + to * o.stride + i * peer_line, bytes).whole;
  __syncthreads();
  if (!threadIdx.x) raise_flag(flag_at(buffer, number, 0, o.rank), number);
}

PLAIT_KERNEL(peer_combine, peer_threads, 4, (PeerOperands o)) {
  PLAIT_SHARED(int32_t, seen, most_peers);
  const bool sums = o.element != PeerElement::bytes;
  const uint32_t number = number_of(o);
  const int thread = static_cast<int>(threadIdx.x);
  if (sums) {
    if (thread < o.ranks)
      seen[thread] = thread == o.rank || wait_for_flag(flag_at(o.own, number, 0, thread), number, o.stop);
    __syncthreads();
    for (int rank = 0; rank < o.ranks; ++rank)
      if (!seen[rank]) return;
  }
  const int64_t i = line_number(), bytes = bytes_from(o, o.rank, i);
  if (bytes > 0) {
    Line line = load_line(o, o.in + (sums ? o.rank * o.stride : 0) + i * peer_line, bytes);
    if (sums) line = sum_line(o, number, i, line);
    store_line(o, o.out + (o.gives ? o.rank * o.stride : 0) + i * peer_line, line, bytes);
    if (o.gives)
      for (int rank = 0; rank < o.ranks; ++rank)
        if (rank != o.rank) *line_at(o, o.buffers[rank], number, 1, o.rank, i) = line.whole;
  }
  if (!o.gives) {
    finish(o, number);
    return;
  }
  __syncthreads();
  if (thread < o.ranks && thread != o.rank) raise_flag(flag_at(o.buffers[thread], number, 1, o.rank), number);
}

/// A row of blocks for each other rank.
PLAIT_KERNEL(peer_collect, peer_threads, 4, (PeerOperands o)) {
  PLAIT_SHARED(int32_t, seen, 1);
  const int from = (o.rank + 1 + static_cast<int>(blockIdx.y)) % o.ranks;
  const uint32_t number = number_of(o);
  if (!threadIdx.x) *seen = wait_for_flag(flag_at(o.own, number, 1, from), number, o.stop);
  __syncthreads();
  if (!*seen) return;
  const int64_t i = line_number(), bytes = bytes_from(o, from, i);
  if (bytes > 0) {
    Line line;
    line.whole = *line_at(o, o.own, number, 1, from, i);
    store_line(o, o.out + from * o.stride + i * peer_line, line, bytes);
  }
  finish(o, number);
}

}  // namespace plait::cuda
