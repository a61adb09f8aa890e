// Mixtures of experts after the router: only the weights of chosen experts are read. A warp makes one number of a choice, and the order of
// its sum depends on k only. The choices of several tokens are sorted by their experts, and a warp makes the number of up to expert_rows
// of them, so that it reads the weights once; the bits are the same.
#include "kernels/cuda/kernels/experts.h"

#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/gates.h"
#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/peer_words.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {
namespace {

/// Elements as they are.
template <class T>
struct PlainStack {
  static PLAIT_DEVICE float one(const ExpertStack& stack, int64_t at) {
    return value_of(static_cast<const T*>(stack.weights)[at]);
  }
  static PLAIT_DEVICE void eight(const ExpertStack& stack, int64_t at, float (&out)[8]) {
    constexpr int loads = sizeof(T) * 8 / 16, each = 8 / loads;
    union {
      uint4 words[loads];
      T elements[8];
    } from;
#pragma unroll
    for (int i = 0; i < loads; ++i) from.words[i] = load_once(static_cast<const T*>(stack.weights) + at + i * each);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = value_of(from.elements[i]);
  }
};

PLAIT_DEVICE float zero_of(const ExpertStack& stack, int64_t at) {
  if (!stack.zeros) return stack.zero;
  if (stack.zero_type == zero_u8) return static_cast<const uint8_t*>(stack.zeros)[at];
  if (stack.zero_type == zero_i8) return static_cast<const int8_t*>(stack.zeros)[at];
  return load_element(stack.zeros, static_cast<Element>(stack.zero_type), at);
}

/// Codes of 2, 4 or 8 bits, the lowest first.
template <int bits>
struct CodeStack {
  static PLAIT_DEVICE float value(const ExpertStack& stack, uint32_t word, int i, float scale, float zero) {
    const auto code = static_cast<int32_t>(word >> (i * bits) & ((1U << bits) - 1));
    return scale * (static_cast<float>((code ^ stack.sign) - stack.sign) - zero);
  }
  static PLAIT_DEVICE float one(const ExpertStack& stack, int64_t at) {
    const int64_t block = at / stack.block;
    const uint32_t byte = static_cast<const uint8_t*>(stack.weights)[at * bits / 8];
    return value(stack, byte, static_cast<int>(at % (8 / bits)),
                 load_element(stack.scales, stack.scale_element, block), zero_of(stack, block));
  }
  static PLAIT_DEVICE void eight(const ExpertStack& stack, int64_t at, float (&out)[8]) {
    const int64_t block = at / stack.block;
    const float scale = load_element(stack.scales, stack.scale_element, block), zero = zero_of(stack, block);
    const auto* const from = static_cast<const uint8_t*>(stack.weights) + at * bits / 8;
    const uint2 words = bits == 8   ? *reinterpret_cast<const uint2*>(from)
                        : bits == 4 ? uint2{*reinterpret_cast<const uint32_t*>(from), 0}
                                    : uint2{*reinterpret_cast<const uint16_t*>(from), 0};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      out[i] = value(stack, bits == 8 && i >= 4 ? words.y : words.x, bits == 8 ? i % 4 : i, scale, zero);
  }
};

/// A row of an expert times the first `count` of some x, and its bias; on all lanes.
template <class Stack, int rows>
PLAIT_DEVICE void dots(const ExpertStack& stack, int64_t expert, int row, const float* const (&x)[rows], int count,
                       float (&sums)[rows]) {
  const int lane = threadIdx.x % lanes;
  const int64_t number = expert * stack.n + row, begin = number * stack.row;
#pragma unroll
  for (int r = 0; r < rows; ++r) sums[r] = 0;
  if (stack.eights == whole_eights) {
    for (int k = lane * 8; k < stack.k; k += lanes * 8) {
      float w[8];
      Stack::eight(stack, begin + k, w);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (r >= count) continue;
        const auto* const from = reinterpret_cast<const float4*>(x[r] + k);
        const float4 a = from[0], b = from[1];
        sums[r] += w[0] * a.x;
        sums[r] += w[1] * a.y;
        sums[r] += w[2] * a.z;
        sums[r] += w[3] * a.w;
        sums[r] += w[4] * b.x;
        sums[r] += w[5] * b.y;
        sums[r] += w[6] * b.z;
        sums[r] += w[7] * b.w;
      }
    }
  } else if (stack.eights) {
    for (int k = lane * 8; k < stack.k; k += lanes * 8) {
      float w[8];
      Stack::eight(stack, begin + k, w);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (r >= count) continue;
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (k + i < stack.k) sums[r] += w[i] * x[r][k + i];
      }
    }
  } else {
    for (int k = lane; k < stack.k; k += lanes) {
      const float w = Stack::one(stack, begin + k);
#pragma unroll
      for (int r = 0; r < rows; ++r)
        if (r < count) sums[r] += w * x[r][k];
    }
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    sums[r] = warp_sum(sums[r]);
    if (stack.bias) sums[r] += load_element(stack.bias, stack.bias_element, number);
  }
}

/// The expert of a choice; -1: another rank has it, or it is out of range, which is reported.
PLAIT_DEVICE int64_t expert_of(const ExpertsOperands& o, int64_t choice) {
  const int64_t number = load_index(o.numbers, choice), expert = number - o.offset;
  if (number < 0 || number >= (o.whole ? o.whole : o.experts)) {
    report_index(o.report, 1, number);
    return -1;
  }
  return expert >= 0 && expert < o.experts ? expert : -1;
}

/// The tile of a block: with one row, a choice.
template <int rows>
PLAIT_DEVICE ExpertTile tile_of(const ExpertsOperands& o) {
  const auto number = static_cast<int32_t>(blockIdx.y);
  if (rows > 1) return number < *o.tile_count ? o.tiles[number] : ExpertTile{};
  const int64_t expert = expert_of(o, number);
  return {static_cast<int32_t>(expert), number, expert >= 0, 0};
}
template <int rows>
PLAIT_DEVICE int64_t choice_at(const ExpertsOperands& o, const ExpertTile& tile, int i) {
  return rows > 1 ? o.order[tile.first + i] : tile.first;
}

template <class Stack, int rows>
PLAIT_DEVICE void hidden(const ExpertsOperands& o) {
  const int row = static_cast<int>(blockIdx.x) * expert_warps + threadIdx.x / lanes;
  const ExpertTile tile = tile_of<rows>(o);
  if (row >= o.gate.n || !tile.count) return;
  const float* x[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) x[r] = o.x + choice_at<rows>(o, tile, r < tile.count ? r : 0) / o.choices * o.gate.k;
  float gate[rows], up[rows];
  dots<Stack>(o.gate, tile.expert, row, x, tile.count, gate);
  if (o.up.weights) dots<Stack>(o.up, tile.expert, row, x, tile.count, up);
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    if (r >= tile.count) continue;
    if (o.limit > 0) gate[r] = fminf(gate[r], o.limit);
    float out = activate(o.activation, o.alpha * gate[r]) / o.alpha;
    if (o.up.weights) out *= (o.limit > 0 ? fminf(fmaxf(up[r], -o.limit), o.limit) : up[r]) + o.beta;
    if (threadIdx.x % lanes == 0) o.hidden[choice_at<rows>(o, tile, r) * o.gate.n + row] = out;
  }
}

/// An element of y.
PLAIT_DEVICE void finish(const ExpertsOperands& o, int64_t token, int row, float sum) {
  const int64_t at = token * o.down.n + row;
  o.y[at] = sum;
  give(o.give, number_if_given(o.give), at, sum);
}

/// The sum over a token's choices.
template <class Stack>
PLAIT_DEVICE void down(const ExpertsOperands& o) {
  const int row = static_cast<int>(blockIdx.x) * expert_warps + threadIdx.x / lanes;
  const int64_t token = blockIdx.y;
  if (row >= o.down.n) return;
  float sum = 0;
  for (int64_t choice = token * o.choices; choice < (token + 1) * o.choices; ++choice)
    if (const int64_t expert = expert_of(o, choice); expert >= 0) {
      const float* const x[1]{o.hidden + choice * o.down.k};
      float part[1];
      dots<Stack>(o.down, expert, row, x, 1, part);
      sum += o.shares[choice] * part[0];
    }
  if (threadIdx.x % lanes == 0) finish(o, token, row, sum);
}

/// What experts_join sums.
template <class Stack>
PLAIT_DEVICE void down_parts(const ExpertsOperands& o) {
  constexpr int rows = expert_rows;
  const int row = static_cast<int>(blockIdx.x) * expert_warps + threadIdx.x / lanes;
  const ExpertTile tile = tile_of<rows>(o);
  if (row >= o.down.n || !tile.count) return;
  const float* x[rows];
#pragma unroll
  for (int r = 0; r < rows; ++r) x[r] = o.hidden + choice_at<rows>(o, tile, r < tile.count ? r : 0) * o.down.k;
  float part[rows];
  dots<Stack>(o.down, tile.expert, row, x, tile.count, part);
#pragma unroll
  for (int r = 0; r < rows; ++r)
    if (r < tile.count && threadIdx.x % lanes == 0) o.parts[choice_at<rows>(o, tile, r) * o.down.n + row] = part[r];
}

/// Sums up to each thread of the block, exclusive of its own.
template <int threads>
PLAIT_DEVICE uint2 block_sums_before(uint2 own) {
  PLAIT_SHARED(uint2, sums, threads);
  const int thread = static_cast<int>(threadIdx.x);
  uint2 sum = own;
  for (int by = 1; by < threads; by *= 2) {
    sums[thread] = sum;
    __syncthreads();
    if (thread >= by) sum.x += sums[thread - by].x, sum.y += sums[thread - by].y;
    __syncthreads();
  }
  return {sum.x - own.x, sum.y - own.y};
}

}  // namespace

/// The order, and the tiles. The choices of an expert are in any order, which no result shows.
PLAIT_KERNEL(experts_sort, expert_sort_threads, 1, (ExpertsOperands o)) {
  PLAIT_DYNAMIC_SHARED(int32_t, numbers);
  int32_t *const counts = numbers, *const next =
                                       numbers + o.experts;  // of an expert: its choices, the place of its next one
  const int thread = static_cast<int>(threadIdx.x), choices = static_cast<int>(o.tokens * o.choices);
  for (int i = thread; i < o.experts; i += expert_sort_threads) counts[i] = 0;
  __syncthreads();
  for (int i = thread; i < choices; i += expert_sort_threads)
    if (const int64_t expert = expert_of(o, i); expert >= 0) atomicAdd(counts + expert, 1);
  __syncthreads();
  const int each = static_cast<int>((o.experts + expert_sort_threads - 1) / expert_sort_threads),
            begin = thread * each;
  const int end = begin + each < o.experts ? begin + each : static_cast<int>(o.experts);
  uint2 own{0, 0};  // choices, tiles
  for (int i = begin; i < end; ++i)
    own.x += counts[i], own.y += static_cast<uint32_t>(ceil_div(counts[i], expert_rows));
  uint2 at = block_sums_before<expert_sort_threads>(own);
  for (int i = begin; i < end; ++i) {
    next[i] = static_cast<int32_t>(at.x);
    for (int first = 0; first < counts[i]; first += expert_rows) {
      const int left = counts[i] - first;
      o.tiles[at.y++] = {i, next[i] + first, left < expert_rows ? left : expert_rows, 0};
    }
    at.x += counts[i];
  }
  if (thread == expert_sort_threads - 1) *o.tile_count = static_cast<int32_t>(at.y);
  __syncthreads();
  for (int i = thread; i < choices; i += expert_sort_threads)
    if (const int64_t expert = expert_of(o, i); expert >= 0) o.order[atomicAdd(next + expert, 1)] = i;
}

/// y of a token: its parts, in the order of its choices.
PLAIT_KERNEL(experts_join, expert_threads, 4, (ExpertsOperands o)) {
  const int row = static_cast<int>(blockIdx.x * expert_threads + threadIdx.x);
  const int64_t token = blockIdx.y;
  if (row >= o.down.n) return;
  float sum = 0;
  for (int64_t choice = token * o.choices; choice < (token + 1) * o.choices; ++choice)
    if (expert_of(o, choice) >= 0) sum += o.shares[choice] * o.parts[choice * o.down.n + row];
  finish(o, token, row, sum);
}

PLAIT_KERNEL(experts_hidden_f32, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<float>, 1>(o); }
PLAIT_KERNEL(experts_hidden_bf16, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<Bf16>, 1>(o); }
PLAIT_KERNEL(experts_hidden_f16, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<F16>, 1>(o); }
PLAIT_KERNEL(experts_hidden_int8, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<8>, 1>(o); }
PLAIT_KERNEL(experts_hidden_int4, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<4>, 1>(o); }
PLAIT_KERNEL(experts_hidden_int2, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<2>, 1>(o); }

PLAIT_KERNEL(experts_down_f32, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<float>>(o); }
PLAIT_KERNEL(experts_down_bf16, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<Bf16>>(o); }
PLAIT_KERNEL(experts_down_f16, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<F16>>(o); }
PLAIT_KERNEL(experts_down_int8, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<8>>(o); }
PLAIT_KERNEL(experts_down_int4, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<4>>(o); }
PLAIT_KERNEL(experts_down_int2, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<2>>(o); }

PLAIT_KERNEL(experts_hidden_sorted_f32, expert_threads, 2, (ExpertsOperands o)) {
  hidden<PlainStack<float>, expert_rows>(o);
}
PLAIT_KERNEL(experts_hidden_sorted_bf16, expert_threads, 2, (ExpertsOperands o)) {
  hidden<PlainStack<Bf16>, expert_rows>(o);
}
PLAIT_KERNEL(experts_hidden_sorted_f16, expert_threads, 2, (ExpertsOperands o)) {
  hidden<PlainStack<F16>, expert_rows>(o);
}
PLAIT_KERNEL(experts_hidden_sorted_int8, expert_threads, 2, (ExpertsOperands o)) {
  hidden<CodeStack<8>, expert_rows>(o);
}
PLAIT_KERNEL(experts_hidden_sorted_int4, expert_threads, 2, (ExpertsOperands o)) {
  hidden<CodeStack<4>, expert_rows>(o);
}
PLAIT_KERNEL(experts_hidden_sorted_int2, expert_threads, 2, (ExpertsOperands o)) {
  hidden<CodeStack<2>, expert_rows>(o);
}

PLAIT_KERNEL(experts_down_sorted_f32, expert_threads, 2, (ExpertsOperands o)) { down_parts<PlainStack<float>>(o); }
PLAIT_KERNEL(experts_down_sorted_bf16, expert_threads, 2, (ExpertsOperands o)) { down_parts<PlainStack<Bf16>>(o); }
PLAIT_KERNEL(experts_down_sorted_f16, expert_threads, 2, (ExpertsOperands o)) { down_parts<PlainStack<F16>>(o); }
PLAIT_KERNEL(experts_down_sorted_int8, expert_threads, 2, (ExpertsOperands o)) { down_parts<CodeStack<8>>(o); }
PLAIT_KERNEL(experts_down_sorted_int4, expert_threads, 2, (ExpertsOperands o)) { down_parts<CodeStack<4>>(o); }
PLAIT_KERNEL(experts_down_sorted_int2, expert_threads, 2, (ExpertsOperands o)) { down_parts<CodeStack<2>>(o); }

}  // namespace plait::cuda
