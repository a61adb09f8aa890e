// Layers with a state along the tokens: causal convolutions, and linear attention (ONNX opset 27).
#include "kernels/cuda/kernels/recurrent.h"

#include "kernels/cuda/kernels/activations.h"
#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/indices.h"

namespace plait::cuda {
namespace {

/// A slot of a segment: 0 the state before its tokens, 1 after them; -1: none, or out of range, which is reported.
PLAIT_DEVICE int64_t slot_of(const SegmentSlots& runs, int64_t segment, int which) {
  const int64_t slot = load_index(runs.slots, 2 * segment + which);
  if (slot >= -1 && slot < runs.states) return slot;
  report_index(runs.report, static_cast<int>(runs.operand) + 1, slot);
  return -1;
}

/// The segment of a token; -1: none, or out of range, which is reported.
PLAIT_DEVICE int64_t segment_of(const SegmentSlots& runs, int64_t token) {
  const int64_t segment = load_index(runs.segments, token);
  if (segment >= -1 && segment < runs.count) return segment;
  report_index(runs.report, static_cast<int>(runs.operand), segment);
  return -1;
}

struct TokenRange {
  int64_t begin, end;
};

/// The tokens of a segment, for all threads of the block.
PLAIT_DEVICE TokenRange tokens_of(const SegmentSlots& runs, int64_t segment) {
  PLAIT_SHARED(TokenRange, range, 1);
  if (threadIdx.x == 0) {
    int64_t begin = 0;
    while (begin < runs.tokens && load_index(runs.segments, begin) != segment) ++begin;
    int64_t end = begin;
    while (end < runs.tokens && load_index(runs.segments, end) == segment) ++end;
    *range = {begin, end};
  }
  __syncthreads();
  return *range;
}

}  // namespace

/// A thread a token and channel.
PLAIT_KERNEL(causal_conv, conv_threads, 4, (CausalConvOperands o)) {
  const int channel = static_cast<int>(blockIdx.x * conv_threads + threadIdx.x), before = o.taps - 1;
  const int64_t token = blockIdx.y;
  if (channel >= o.c) return;
  float* const y = o.y + token * o.c + channel;
  const int64_t segment = segment_of(o.runs, token);
  if (segment < 0) {
    *y = 0;
    return;
  }
  int own = 0;  // tokens of the segment before this one, as far as they count
  while (own < before && own < token && load_index(o.runs.segments, token - own - 1) == segment) ++own;
  const int64_t slot = own < before ? slot_of(o.runs, segment, 0) : -1;
  float sum = o.bias ? load_element(o.bias, o.bias_element, channel) : 0;
  for (int tap = 0; tap < o.taps; ++tap) {
    const int back = before - tap;
    float x = 0;
    if (back <= own) x = o.x[(token - back) * o.c + channel];
    else if (slot >= 0) x = o.state[(slot * before + own + tap) * o.c + channel];
    sum += load_element(o.w, o.w_element, static_cast<int64_t>(tap) * o.c + channel) * x;
  }
  *y = o.silu ? silu(sum) : sum;
}

/// The states after the tokens: a thread a segment and channel, in an order in which a slot may be both.
PLAIT_KERNEL(causal_conv_state, conv_threads, 4, (CausalConvOperands o)) {
  const int channel = static_cast<int>(blockIdx.x * conv_threads + threadIdx.x), before = o.taps - 1;
  const TokenRange tokens = tokens_of(o.runs, blockIdx.y);
  const int64_t count = tokens.end - tokens.begin;
  if (channel >= o.c || count == 0) return;
  const int64_t from = slot_of(o.runs, blockIdx.y, 0), to = slot_of(o.runs, blockIdx.y, 1);
  if (to < 0) return;
  for (int i = 0; i < before; ++i) {
    const int64_t at = count + i;
    float x = 0;
    if (at >= before) x = o.x[(tokens.begin + at - before) * o.c + channel];
    else if (from >= 0) x = o.state[(from * before + at) * o.c + channel];
    o.state[(to * before + i) * o.c + channel] = x;
  }
}

/// Columns of the state of a segment and head. The order of sums depends on d only.
PLAIT_KERNEL(linear_attention, state_threads, 2, (LinearAttentionOperands o)) {
  PLAIT_DYNAMIC_SHARED(float, state);  // [d, 32]
  PLAIT_SHARED(float, parts, state_threads);
  const TokenRange tokens = tokens_of(o.runs, blockIdx.z);
  if (tokens.begin == tokens.end) return;
  const int column = threadIdx.x % state_columns, warp = threadIdx.x / state_columns, head = blockIdx.y;
  const int j = static_cast<int>(blockIdx.x) * state_columns + column;
  const bool exists = j < o.e;
  const int64_t from = slot_of(o.runs, blockIdx.z, 0), to = slot_of(o.runs, blockIdx.z, 1);
  const auto place = [&](int64_t slot, int k) { return ((slot * o.g + head) * o.d + k) * o.e + j; };
  /// The sum of all warps' parts of a column.
  const auto sum_of = [&](float part) {
    parts[threadIdx.x] = part;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < state_warps; ++i) sum += parts[i * state_columns + column];
    __syncthreads();
    return sum;
  };
  for (int k = warp; k < o.d; k += state_warps)
    state[k * state_columns + column] = exists && from >= 0 ? o.state[place(from, k)] : 0;
  const int shared = o.n / o.g;  // outputs of a state
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const float* const key = o.key + (token * o.keys + static_cast<int64_t>(head) * o.keys / o.g) * o.d;
    const int64_t of_head = token * o.g + head;
    float value = exists ? o.value[of_head * o.e + j] : 0, found = 0;
    for (int k = warp; k < o.d; k += state_warps) {
      float& element = state[k * state_columns + column];
      if (o.decay) element *= expf(o.decay[o.decay_of_keys ? of_head * o.d + k : of_head]);
      found += element * key[k];
    }
    if (o.beta) value = o.beta[o.beta_of_heads ? of_head : token] * (value - sum_of(found));
    for (int k = warp; k < o.d; k += state_warps) state[k * state_columns + column] += key[k] * value;
    for (int at = head * shared; at < (head + 1) * shared; ++at) {
      const float* const query = o.query + (token * o.h + static_cast<int64_t>(at) * o.h / o.n) * o.d;
      float part = 0;
      for (int k = warp; k < o.d; k += state_warps) part += o.scale * query[k] * state[k * state_columns + column];
      const float sum = sum_of(part);
      if (exists && warp == 0) o.y[(token * o.n + at) * o.e + j] = sum;
    }
  }
  for (int k = warp; k < o.d && exists && to >= 0; k += state_warps) o.state[place(to, k)] = state[k * state_columns + column];
}

}  // namespace plait::cuda
