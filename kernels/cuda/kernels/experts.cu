// Mixtures of experts after the router: only the weights of chosen experts are read. A warp makes one number of one choice, so the order
// of its sum depends on k only.
#include "kernels/cuda/kernels/experts.h"

#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/gates.h"
#include "kernels/cuda/kernels/indices.h"
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
    return value(stack, byte, static_cast<int>(at % (8 / bits)), load_element(stack.scales, stack.scale_element, block),
                 zero_of(stack, block));
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

/// x times a row of an expert, and its bias; on all lanes.
template <class Stack>
PLAIT_DEVICE float dot(const ExpertStack& stack, int64_t expert, int row, const float* x) {
  const int lane = threadIdx.x % lanes;
  const int64_t number = expert * stack.n + row, begin = number * stack.row;
  float sum = 0;
  if (stack.eights) {
    for (int k = lane * 8; k < stack.k; k += lanes * 8) {
      float w[8];
      Stack::eight(stack, begin + k, w);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (k + i < stack.k) sum += w[i] * x[k + i];
    }
  } else {
    for (int k = lane; k < stack.k; k += lanes) sum += Stack::one(stack, begin + k) * x[k];
  }
  sum = warp_sum(sum);
  return stack.bias ? sum + load_element(stack.bias, stack.bias_element, number) : sum;
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

template <class Stack>
PLAIT_DEVICE void hidden(const ExpertsOperands& o) {
  const int row = static_cast<int>(blockIdx.x) * expert_warps + threadIdx.x / lanes;
  const int64_t choice = blockIdx.y, expert = expert_of(o, choice);
  if (row >= o.gate.n || expert < 0) return;
  const float* const x = o.x + choice / o.choices * o.gate.k;
  float gate = dot<Stack>(o.gate, expert, row, x);
  if (o.limit > 0) gate = fminf(gate, o.limit);
  float out = activate(o.activation, o.alpha * gate) / o.alpha;
  if (o.up.weights) {
    const float up = dot<Stack>(o.up, expert, row, x);
    out *= (o.limit > 0 ? fminf(fmaxf(up, -o.limit), o.limit) : up) + o.beta;
  }
  if (threadIdx.x % lanes == 0) o.hidden[choice * o.gate.n + row] = out;
}

template <class Stack>
PLAIT_DEVICE void down(const ExpertsOperands& o) {
  const int row = static_cast<int>(blockIdx.x) * expert_warps + threadIdx.x / lanes;
  const int64_t token = blockIdx.y;
  if (row >= o.down.n) return;
  float sum = 0;
  for (int64_t choice = token * o.choices; choice < (token + 1) * o.choices; ++choice)
    if (const int64_t expert = expert_of(o, choice); expert >= 0)
      sum += o.shares[choice] * dot<Stack>(o.down, expert, row, o.hidden + choice * o.down.k);
  if (threadIdx.x % lanes == 0) o.y[token * o.down.n + row] = sum;
}

}  // namespace

PLAIT_KERNEL(experts_hidden_f32, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<float>>(o); }
PLAIT_KERNEL(experts_hidden_bf16, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<Bf16>>(o); }
PLAIT_KERNEL(experts_hidden_f16, expert_threads, 2, (ExpertsOperands o)) { hidden<PlainStack<F16>>(o); }
PLAIT_KERNEL(experts_hidden_int8, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<8>>(o); }
PLAIT_KERNEL(experts_hidden_int4, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<4>>(o); }
PLAIT_KERNEL(experts_hidden_int2, expert_threads, 2, (ExpertsOperands o)) { hidden<CodeStack<2>>(o); }

PLAIT_KERNEL(experts_down_f32, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<float>>(o); }
PLAIT_KERNEL(experts_down_bf16, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<Bf16>>(o); }
PLAIT_KERNEL(experts_down_f16, expert_threads, 2, (ExpertsOperands o)) { down<PlainStack<F16>>(o); }
PLAIT_KERNEL(experts_down_int8, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<8>>(o); }
PLAIT_KERNEL(experts_down_int4, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<4>>(o); }
PLAIT_KERNEL(experts_down_int2, expert_threads, 2, (ExpertsOperands o)) { down<CodeStack<2>>(o); }

}  // namespace plait::cuda
