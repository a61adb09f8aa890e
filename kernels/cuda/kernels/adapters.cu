// Low-rank adapters (Hu et al. 2022), another one for each token. Tokens without one keep their bits.
#include "kernels/cuda/kernels/adapters.h"

#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/peer_words.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {
namespace {

/// The token's adapter; -1: none, or out of range, which is reported.
PLAIT_DEVICE int64_t adapter_of(const AdapterOperands& o, int64_t token) {
  const int64_t adapter = load_index(o.adapters, token);
  if (adapter >= -1 && adapter < o.count) return adapter;
  report_index(o.report, 4, adapter);
  return -1;
}

}  // namespace

/// A warp a token and row of a.
PLAIT_KERNEL(adapters_low, reduce_threads, 4, (AdapterOperands o)) {
  const int64_t number = static_cast<int64_t>(blockIdx.x) * reduce_warps + threadIdx.x / 32, token = number / o.r;
  if (token >= o.tokens) return;
  const int64_t adapter = adapter_of(o, token);
  if (adapter < 0) return;
  const int64_t begin = (adapter * o.r + number % o.r) * o.k;
  float sum = 0;
  for (int k = threadIdx.x % 32; k < o.k; k += 32) sum += load_element(o.a, o.element, begin + k) * o.x[token * o.k + k];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) o.low[number] = sum;
}

/// A thread an element of y.
PLAIT_KERNEL(adapters_add, map_threads, 4, (AdapterOperands o)) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * map_threads + threadIdx.x, token = i / o.n;
  if (token >= o.tokens) return;
  const uint32_t number = number_if_given(o.give);
  const int64_t adapter = adapter_of(o, token);
  float sum = 0;
  for (int r = 0; adapter >= 0 && r < o.r; ++r)
    sum += load_element(o.b, o.element, (adapter * o.n + i % o.n) * o.r + r) * o.low[token * o.r + r];
  const float y = adapter >= 0 ? o.added[i] + sum : o.added[i];
  o.y[i] = y;
  give(o.give, number, i, y);
}

}  // namespace plait::cuda
