#pragma once
// The two loops of all matrix products.
#include <algorithm>

#include "core/base/thread_pool.h"

namespace plait::reference {

/// Calls task(i) for i in [0, count): over the pool if the work (in multiplications) is large enough.
template <class F>
void share(ThreadPool& pool, int64_t count, int64_t work, F task) {
  if (work >= 1 << 16) return pool.for_each(count, [&](int64_t i, int) { task(i); });
  for (int64_t i = 0; i < count; ++i) task(i);
}

/// c [m, n] = a [m, k] b [k, n]; each sum in ascending k, in N. Tiles of 8 x 512 outputs (16 KB of f32) stay in L1
/// while each row of b is read once.
template <class N>
void multiply(int64_t m, int64_t n, int64_t k, const N* a, const N* b, N* c, ThreadPool& pool) {
  constexpr int64_t tall = 8, wide = 512;
  int64_t down = (m + tall - 1) / tall, across = (n + wide - 1) / wide;
  share(pool, down * across, m * n * k, [=](int64_t tile) {
    int64_t i0 = tile / across * tall, i1 = std::min(i0 + tall, m);
    int64_t j0 = tile % across * wide, width = std::min(wide, n - j0);
    for (int64_t i = i0; i < i1; ++i) std::fill_n(c + i * n + j0, width, N{0});
    for (int64_t l = 0; l < k; ++l)
      for (int64_t i = i0; i < i1; ++i) {
        N factor = a[i * k + l];
        const N* from = b + l * n + j0;
        N* to = c + i * n + j0;
        for (int64_t j = 0; j < width; ++j) to[j] += factor * from[j];
      }
  });
}

/// The sum of x[i] * y[i]: 16 partial sums, the one of lane j over i = j modulo 16 in ascending order, then added
/// pairwise: lane j to lane j + 8, + 4, + 2, + 1.
template <class N>
N dot(const N* x, const N* y, int64_t count) {
  constexpr int64_t lanes = 16;
  N sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t j = 0; j < lanes; ++j) sums[j] += x[i + j] * y[i + j];
  for (int64_t j = 0; i + j < count; ++j) sums[j] += x[i + j] * y[i + j];
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return sums[0];
}

}  // namespace plait::reference
